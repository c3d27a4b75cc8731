# Man pages.  The option lists of gpt-train and gpt-sample come from their --help=all and replace the line @OPTIONS@ of
# the .in file.  A cross build without an EMULATOR cannot run the programs
# and takes the pages that the release brings.
dist_man_MANS += doc/gpt-train.1 doc/gpt-prepare.1 doc/gpt-sample.1 doc/gpt-export.1 doc/gpt-report.1 doc/gpt-check.1
EXTRA_DIST += doc/gpt-train.1.in doc/gpt-sample.1.in doc/completion.sh doc/man_page.sh doc/pictures.py
# The documents link to each other, and README.md, beside this folder, to them.
documentsdir = $(docdir)/doc
dist_documents_DATA = doc/ARCHITECTURE.md doc/checkpoint.md doc/cpu.md doc/cuda.md doc/data.md doc/devices.md doc/distributed.md doc/errors.md \
	doc/finetune.md doc/memory.md doc/memory-124m.svg doc/nanogpt.md doc/not.md doc/numerics.md doc/opencl.md doc/own_text.md doc/plan.md doc/platforms.md \
	doc/reliability.md doc/report.md doc/report.svg doc/session.svg doc/states.md doc/style.md doc/weekend.md \
	doc/when_training_goes_wrong.md

if CROSS_COMPILING
else
CLEANFILES += doc/gpt-train.1 doc/gpt-sample.1

doc/gpt-train.1: $(srcdir)/doc/gpt-train.1.in $(srcdir)/doc/man_page.sh gpt-train$(EXEEXT)
	$(AM_V_GEN)$(MAN_MAKE) ./gpt-train$(EXEEXT) $(PACKAGE_VERSION) <$(srcdir)/doc/gpt-train.1.in >$@.new && mv $@.new $@
doc/gpt-sample.1: $(srcdir)/doc/gpt-sample.1.in $(srcdir)/doc/man_page.sh gpt-sample$(EXEEXT)
	$(AM_V_GEN)$(MAN_MAKE) ./gpt-sample$(EXEEXT) $(PACKAGE_VERSION) <$(srcdir)/doc/gpt-sample.1.in >$@.new && mv $@.new $@
MAN_MAKE = $(MKDIR_P) doc && EMULATOR='$(EMULATOR)' $(SHELL) $(srcdir)/doc/man_page.sh

# Completions are written where they go, from each program's --help.
bash_completions = $(datadir)/bash-completion/completions
zsh_completions = $(datadir)/zsh/site-functions
fish_completions = $(datadir)/fish/vendor_completions.d
install-data-local: $(bin_PROGRAMS)
	$(MKDIR_P) "$(DESTDIR)$(bash_completions)" "$(DESTDIR)$(zsh_completions)" "$(DESTDIR)$(fish_completions)"
	EMULATOR='$(EMULATOR)' && export EMULATOR && for name in $(bin_PROGRAMS); do \
		$(SHELL) $(srcdir)/doc/completion.sh bash ./$$name >"$(DESTDIR)$(bash_completions)/$$name" && \
		$(SHELL) $(srcdir)/doc/completion.sh zsh ./$$name >"$(DESTDIR)$(zsh_completions)/_$$name" && \
		$(SHELL) $(srcdir)/doc/completion.sh fish ./$$name >"$(DESTDIR)$(fish_completions)/$$name.fish" || exit 1; \
	done
uninstall-local:
	for name in $(bin_PROGRAMS); do \
		rm -f "$(DESTDIR)$(bash_completions)/$$name" "$(DESTDIR)$(zsh_completions)/_$$name" \
			"$(DESTDIR)$(fish_completions)/$$name.fish"; \
	done
endif
