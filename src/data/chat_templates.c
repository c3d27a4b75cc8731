/* The chat templates of models, one row for each family.  Recognises the family of a model's
 * template.
 *
 * A model's template is a program in Jinja.  None is run here: its text is found by its checksum,
 * else by marks that only one family has, and the family's row says what the program would write.
 *
 * Sources: the templates of the models named, as transformers' apply_chat_template() runs them;
 * TRL's trl/chat_templates has copies of most (TRL 1.16).
 */
#include "data/chat_templates.h"

#include "data/chat_kind.h"
#include "data/chat_out.h"

/* Our own text of a family, in Jinja: what comes before the turns, a turn, the beginning of an
 * answer.  No line begins after a tag, where some readers remove it. */
#define JINJA_TURNS(begin, list, turn, prompt)                                                     \
    begin "{% for message in " list " %}" turn "{% endfor %}{% if add_generation_prompt %}" prompt \
          "{% endif %}"
#define JINJA(begin, list, turn, prompt) JINJA_TURNS(begin, list, turn, "{{ '" prompt "' }}")
#define JINJA_PLAIN(before, between, after, prompt)                                          \
    JINJA("", "messages",                                                                    \
          "{{ '" before "' + message['role'] + '" between "' + message['content'] + '" after \
          "' }}",                                                                            \
          prompt)
#define JINJA_CHATML(begin) \
    begin JINJA_PLAIN("<|im_start|>", "\\n", "<|im_end|>' + '\\n", "<|im_start|>assistant\\n")
#define JINJA_DEFAULT(text)                                                               \
    JINJA_CHATML("{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" text \
                 "<|im_end|>\\n' }}{% endif %}")
#define JINJA_LLAMA3(content)                                                                 \
    JINJA("{{ '<|begin_of_text|>' }}", "messages",                                            \
          "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + " content \
          " + '<|eot_id|>' }}",                                                               \
          "<|start_header_id|>assistant<|end_header_id|>\\n\\n")
/* Takes the system message out of the list. */
#define JINJA_TAKE                                                                                 \
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\\n\\n' %}" \
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}"      \
    "{% endif %}"
#define JINJA_GEMMA(begin, list, first)                                                            \
    JINJA("{{ '<bos>' }}" begin, list,                                                             \
          "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else "                \
          "message['role']) + '\\n' + " first "message['content'] | trim + '<end_of_turn>\\n' }}", \
          "<start_of_turn>model\\n")

/* With tools and reasoning.  `said` is an answer's text, `why` its reasoning. */
#define JINJA_FIRST "{% set first = messages[0]['role'] == 'system' %}"
#define JINJA_SAID "{% set said = message['content'] or '' %}"
#define JINJA_CALLS(between, before, middle, arguments, after)                               \
    "{% for call in message['tool_calls'] or [] %}" between                                  \
    "{% set call = call['function'] or call %}" before "{\"name\": \"{{ call['name'] }}\", " \
    "\"" middle "\": " arguments "{{ '}" after "' }}{% endfor %}"
#define JINJA_ARGUMENTS "{{ call['arguments'] | tojson }}"
#define JINJA_ARGUMENTS_OR_TEXT                                                             \
    "{% if call['arguments'] is string %}{{ call['arguments'] }}{% else %}" JINJA_ARGUMENTS \
    "{% endif %}"
#define JINJA_QWEN_LIST(begin, end) \
    begin "{% for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}{{ '\\n' }}" end
/* A tool's result. */
#define JINJA_RESULT(text)                                                               \
    "{% if message['role'] == 'tool' %}"                                                 \
    "{% if loop.first or messages[loop.index0 - 1]['role'] != 'tool' %}<|im_start|>user" \
    "{% endif %}{{ '\\n' }}" CHAT_RESULT_BEGIN "\n{{ " text " }}\n" CHAT_RESULT_END      \
    "{% if loop.last or messages[loop.index0 + 1]['role'] != 'tool' %}"                  \
    "<|im_end|>\n{% endif %}"
/* A turn that is neither an answer nor a result. */
#define JINJA_OTHER(text)                                                      \
    "{% elif not (first and loop.first) %}<|im_start|>{{ message['role'] }}\n" \
    "{{ " text " }}<|im_end|>\n{% endif %}"
#define JINJA_QWEN(usual, begin, answer, arguments, prompt)                                                      \
    JINJA_TURNS(                                                                                                 \
        JINJA_FIRST                                                                                              \
        "{% set text = messages[0]['content'] if first else " usual " %}" begin                                  \
        "{% if tools or text is not none %}<|im_start|>system\n{% if text is not none %}"                        \
        "{{ text }}{% endif %}{% if tools %}{% if text is not none %}{{ '\\n\\n' }}{% endif %}" JINJA_QWEN_LIST( \
            CHAT_QWEN_TOOLS, CHAT_QWEN_TOOLS_END) "{% endif %}<|im_end|>\n{% endif %}",                          \
        "messages",                                                                                              \
        JINJA_RESULT(                                                                                            \
            "message['content']") "{% elif message['role'] == 'assistant' %}"                                    \
                                  "<|im_start|>assistant\n" JINJA_SAID answer JINJA_CALLS(                       \
                                      "{% if said or not loop.first %}{{ '\\n' }}{% endif %}",                   \
                                      "<tool_call>\n", "arguments", arguments,                                   \
                                      "\\n</tool_call>") "<|im_end|>\n" JINJA_OTHER("message['content']"),       \
        "<|im_start|>assistant\n" prompt)
/* ns.last: the last question. */
#define JINJA_LAST(text)                                                                \
    "{% set ns = namespace(last=messages | length - 1) %}{% for message in messages %}" \
    "{% if message['role'] == 'user' and not (" text ".startswith('" CHAT_RESULT_BEGIN  \
    "') and " text ".endswith('" CHAT_RESULT_END "')) %}"                               \
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
#define JINJA_WHY                                                                  \
    "{% set why = message['reasoning_content'] %}{% if why is not string %}"       \
    "{% set why = '' %}{% if '</think>' in said %}"                                \
    "{% set why = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}" \
    "{% set why = why.lstrip('\\n') %}"                                            \
    "{% set said = said.split('</think>')[-1].lstrip('\\n') %}{% endif %}{% endif %}"
#define JINJA_QWEN_THINKS(prompt)                                                                \
    JINJA_QWEN(                                                                                  \
        "none", JINJA_LAST("message['content']"),                                                \
        JINJA_WHY                                                                                \
        "{% if loop.index0 > ns.last and (loop.last or why) %}<think>\n{{ why.strip('\\n') }}\n" \
        "</think>\n\n{{ said.lstrip('\\n') }}{% else %}{{ said }}{% endif %}",                   \
        JINJA_ARGUMENTS_OR_TEXT, prompt)
#define JINJA_CALLS35                                                                                \
    "{% for call in message['tool_calls'] or [] %}{% if not loop.first %}{{ '\\n' }}{% elif said %}" \
    "{{ '\\n\\n' }}{% endif %}{% set call = call['function'] or call %}"                             \
    "<tool_call>\n<function={{ call['name'] }}>\n"                                                   \
    "{% for name, value in call['arguments'] | items %}<parameter={{ name }}>\n"                     \
    "{% if value is mapping or (value is sequence and value is not string) %}"                       \
    "{{ value | tojson }}{% else %}{{ value }}{% endif %}{{ '\\n' }}</parameter>\n{% endfor %}"      \
    "</function>\n</tool_call>{% endfor %}"
#define JINJA_QWEN35(prompt)                                                                                                                                                                             \
    JINJA_TURNS(                                                                                                                                                                                         \
        JINJA_FIRST                                                                                                                                                                                      \
        "{% set text = (messages[0]['content'] or '') | trim if first else '' %}" JINJA_LAST("(message['content'] | trim)") "{% if tools or first %}<|im_start|>system\n{% if tools %}" JINJA_QWEN_LIST( \
            CHAT_QWEN35_TOOLS,                                                                                                                                                                           \
            CHAT_QWEN35_TOOLS_END) "{% if text %}{{ '\\n\\n' }}{% endif %}{% endif %}{{ text }}<|im_end|>\n{% endif %}",                                                                                 \
        "messages",                                                                                                                                                                                      \
        "{% set said = (message['content'] or '') | trim %}" JINJA_RESULT(                                                                                                                               \
            "said") "{% elif message['role'] == 'assistant' %}<|im_start|>assistant\n" JINJA_WHY                                                                                                         \
                    "{% if loop.index0 > ns.last %}<think>\n{{ why | trim }}\n</think>\n\n{% endif %}"                                                                                                   \
                    "{{ said }}" JINJA_CALLS35 "<|im_end|>\n" JINJA_OTHER("said"),                                                                                                                       \
        "<|im_start|>assistant\n" prompt)
#define JINJA_SMOLLM3                                                                           \
    JINJA_TURNS(                                                                                \
        JINJA_FIRST                                                                             \
        "{% set text = messages[0]['content'] if first else '' %}"                              \
        "{% set asked = enable_thinking if enable_thinking is defined else true %}"             \
        "{% set thinks = not '" CHAT_SMOL_NO_THINK "' in text and (asked or '" CHAT_SMOL_THINKS \
        "' in text) %}{% set own = '/system_override' in text %}"                               \
        "{% set text = text.replace('" CHAT_SMOL_NO_THINK "', '').replace('" CHAT_SMOL_THINKS   \
        "', '').rstrip() %}<|im_start|>system\n{% if own %}"                                    \
        "{{ text.replace('/system_override', '').rstrip() }}<|im_end|>\n{% else %}" SMOL_HEAD   \
        "{{ '" CHAT_SMOL_THINKS "' if thinks else '" CHAT_SMOL_NO_THINK                         \
        "' }}" CHAT_SMOL_INSTRUCTIONS "{% if text %}{{ text }}{% elif thinks %}" SMOL_THINKS    \
        "{% else %}" SMOL ".{% endif %}{{ '\\n\\n' }}{% endif %}",                              \
        "messages",                                                                             \
        "{% if message['role'] == 'assistant' %}<|im_start|>assistant\n{% if not thinks %}"     \
        "{{ '<think>\\n\\n</think>\\n' }}{% elif message['reasoning_content'] %}<think>\n"      \
        "{{ message['reasoning_content'] }}\n</think>\n{% endif %}"                             \
        "{{ message['content'].lstrip('\\n') }}<|im_end|>\n"                                    \
        "{% elif not (first and loop.first) %}<|im_start|>{{ message['role'] }}\n"              \
        "{{ message['content'] }}<|im_end|>\n{% endif %}",                                      \
        "<|im_start|>assistant\n{% if not thinks %}{{ '<think>\\n\\n</think>\\n' }}{% endif %}")
#define JINJA_LLAMA31(begin)                                                                                   \
    JINJA_TURNS(                                                                                               \
        begin JINJA_FIRST                                                                                      \
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"                                      \
        "{% if tools %}Environment: ipython\n{% endif %}" LLAMA_HEAD                                           \
        "{% if first %}{{ messages[0]['content'] | trim }}{% endif %}<|eot_id|>",                              \
        "messages",                                                                                            \
        "{% if message['role'] == 'tool' %}<|start_header_id|>ipython<|end_header_id|>\n\n"                    \
        "{{ message['content'] | tojson }}<|eot_id|>"                                                          \
        "{% elif not (first and loop.first) %}<|start_header_id|>{{ message['role'] }}"                        \
        "<|end_header_id|>\n\n"                                                                                \
        "{% if message['role'] == 'user' and tools and loop.index0 == (1 if first else 0) %}" CHAT_LLAMA_TOOLS \
        "{% for tool in tools %}{{ tool | tojson(indent=4) }}{{ '\\n\\n' }}"                                   \
        "{% endfor %}{% endif %}" JINJA_CALLS(                                                                 \
            "{% if not loop.first %}{{ '\\n' }}{% endif %}", "", "parameters", JINJA_ARGUMENTS,                \
            "") "{% if not message['tool_calls'] %}{{ message['content'] | trim }}{% endif %}<|eot_id|>"       \
                "{% endif %}",                                                                                 \
        "<|start_header_id|>assistant<|end_header_id|>\n\n")

#define CHATML                                                                          \
    .specials = {"<|im_start|>", "<|im_end|>"}, .end_special = 1, .begin = "",          \
    .before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n", \
               "<|im_start|>user"},                                                     \
    .end = "<|im_end|>", .tail = "\n", .after = "<|im_end|>\n"
#define LLAMA3                                                                                   \
    .specials = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, \
    .end_special = 3, .begin = "<|begin_of_text|>",                                              \
    .before = {"<|start_header_id|>system<|end_header_id|>\n\n",                                 \
               "<|start_header_id|>user<|end_header_id|>\n\n",                                   \
               "<|start_header_id|>assistant<|end_header_id|>\n\n",                              \
               "<|start_header_id|>ipython<|end_header_id|>\n\n"},                               \
    .end = "<|eot_id|>", .tail = "", .after = "<|eot_id|>"
#define GEMMA                                                                                      \
    .specials = {"<bos>", "<start_of_turn>", "<end_of_turn>"}, .end_special = 2, .begin = "<bos>", \
    .before = {"", "<start_of_turn>user\n", "<start_of_turn>model\n"}, .end = "<end_of_turn>",     \
    .tail = "\n", .after = "<end_of_turn>\n", .alternates = true, .one_system = true,              \
    .trims = true
#define JINJA_MISTRAL(space, trim)                                         \
    JINJA("{{ '<s>' }}" JINJA_TAKE, "turns",                               \
          "{% if message['role'] == 'user' %}{{ '[INST]" space "' + "      \
          "(system if loop.last else '') + message['content'] + "          \
          "'[/INST]' }}{% else %}{{ '" space "' + message['content']" trim \
          " + '</s>' }}{% endif %}",                                       \
          "")
#define MISTRAL                                                                         \
    .specials = {"<s>", "</s>", "[INST]", "[/INST]"}, .end_special = 1, .begin = "<s>", \
    .end = "</s>", .tail = "", .after = "[/INST]", .system = CHAT_SYSTEM_LAST_USER,     \
    .one_system = true, .alternates = true
#define PHI3                                                                              \
    .specials = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"}, .end_special = 3, \
    .begin = "", .end = "<|end|>"
#define LLAMA_HEAD "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
#define QWEN25 "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
#define SMOL "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
#define SMOL_HEAD \
    "## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 08 July 2025\nReasoning Mode: "
#define SMOL_THINKS                                                                                                \
    SMOL                                                                                                           \
        ". Your role as an assistant involves thoroughly exploring questions through a systematic thinking "       \
        "process before providing the final precise and accurate solutions. This requires engaging in a "          \
        "comprehensive cycle of analysis, summarizing, exploration, reassessment, reflection, backtracking, and "  \
        "iteration to develop well-considered thinking process. Please structure your response into two main "     \
        "sections: Thought and Solution using the specified format: <think> Thought section </think> Solution "    \
        "section. In the Thought section, detail your reasoning process in steps. Each step should include "       \
        "detailed considerations such as analysing questions, summarizing relevant findings, brainstorming new "   \
        "ideas, verifying the accuracy of the current steps, refining any errors, and revisiting previous steps. " \
        "In the Solution section, based on various attempts, explorations, and reflections from the Thought "      \
        "section, systematically present the final solution that you deem correct. The Solution section should "   \
        "be logical, accurate, and concise and detail necessary steps needed to reach the conclusion."

/* In the order in which marks are compared; the two without a model's text come first. */
static const struct chat_template templates[CHAT_KIND_COUNT] = {
    [CHAT_NONE] = {.word = "none"},
    [CHAT_CHATML] = {CHATML, .word = "chatml", .jinja = JINJA_CHATML(""),
                     .marks = {"<|im_start|>", "<|im_end|>", "message['content']"},
                     .foreign = {"You are ", "tools", "think", "<|im_sep|>", "messages[0]",
                                 "trim"}},
    [CHAT_LLAMA3] = {LLAMA3, .word = "llama3", .jinja = JINJA_LLAMA3("message['content']"),
                     .marks = {"<|start_header_id|>", "<|eot_id|>"},
                     .foreign = {"trim", "tools", "Date", "<|reserved", "system"}},
    [CHAT_SMOLLM2] = {CHATML, .word = "smollm2", .system_default = SMOL,
                      .jinja = JINJA_DEFAULT(SMOL),
                      .hashes = {{0x2e69d16226f7a49a, 0x00ff25c6571100c2}},
                      .marks = {"<|im_start|>", "named SmolLM, trained by Hugging Face<|im_end|>",
                                "messages[0]['role'] != 'system'"},
                      .foreign = {"Metadata", "tools", "think"}},
    [CHAT_QWEN2] = {CHATML, .word = "qwen2", .system_default = "You are a helpful assistant.",
                    .jinja = JINJA_DEFAULT("You are a helpful assistant."),
                    .marks = {"<|im_start|>", "You are a helpful assistant.<|im_end|>",
                              "messages[0]['role'] != 'system'"},
                    .foreign = {"tools", "think", "vision", "image"}},
    [CHAT_QWEN25] =
        {CHATML, .word = "qwen2.5", .system_default = QWEN25, .tools = CHAT_TOOLS_QWEN,
         .hashes = {{0xe65f524db0aaa652, 0xb3989a570916477f}},
         .jinja = JINJA_QWEN("'" QWEN25 "'", "", "{{ said }}", JINJA_ARGUMENTS, ""),
         .marks = {"<|im_start|>",
                   "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
                   "<tool_response>", "</tools>"},
         .foreign = {"think", "vision", "image"}},
    [CHAT_QWEN3] =
        {CHATML, .word = "qwen3", .thinking = CHAT_THINKING_QWEN, .tools = CHAT_TOOLS_QWEN3,
         .hashes = {{0x19517b25701b03ef, 0x76cbcc05953b5f1f}},
         .jinja = JINJA_QWEN_THINKS(
             "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"),
         .marks = {"<|im_start|>", "loop.index0 > ns.last_query_index %}", "reasoning_content",
                   "enable_thinking is false", "<tool_response>", "\"arguments\": "},
         .foreign = {"<function=", "vision", "image", "preserve_thinking"}},
    [CHAT_QWEN3_INSTRUCT] = {CHATML, .word = "qwen3-instruct", .tools = CHAT_TOOLS_QWEN3,
                             .hashes = {{0x338548f49c340b5f, 0xfd083045e35d3db1}},
                             .jinja =
                                 JINJA_QWEN("none", "", "{{ said }}", JINJA_ARGUMENTS_OR_TEXT, ""),
                             .marks = {"<|im_start|>", "<tool_response>", "</tools>",
                                       "\"arguments\": ", "tool_call.arguments is string"},
                             .foreign = {"<function=", "vision", "image", "think",
                                         "created by Alibaba"}},
    [CHAT_QWEN3_THINKING] =
        {CHATML, .word = "qwen3-thinking", .think = "<think>\n", .thinking = CHAT_THINKING_QWEN,
         .tools = CHAT_TOOLS_QWEN3, .jinja = JINJA_QWEN_THINKS("{{ '<think>\\n' }}"),
         .marks = {"<|im_start|>", "loop.index0 > ns.last_query_index %}", "reasoning_content",
                   "assistant\\n<think>\\n' }}", "<tool_response>", "\"arguments\": "},
         .foreign = {"<function=", "vision", "image", "preserve_thinking", "enable_thinking"}},
    [CHAT_QWEN35] =
        {CHATML, .word = "qwen3.5", .think = "<think>\n", .thinking = CHAT_THINKING_QWEN,
         .trims = true, .one_system = true, .tools = CHAT_TOOLS_QWEN35,
         .jinja = JINJA_QWEN35(
             "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% else %}{{ '<think>\\n' }}{% endif %}"),
         .hashes = {{0xb38100fbea7e1b2d, 0x55a648af5808d9c4}},
         .marks = {"<|im_start|>", "ns.last_query_index %}", "<function=", "<|vision_start|>",
                   "enable_thinking is defined and enable_thinking is false"},
         .foreign = {"preserve_thinking"}},
    [CHAT_QWEN35_NOTHINK] =
        {CHATML, .word = "qwen3.5-nothink", .think = "<think>\n\n</think>\n\n",
         .thinking = CHAT_THINKING_QWEN, .trims = true, .one_system = true,
         .tools = CHAT_TOOLS_QWEN35,
         .jinja = JINJA_QWEN35(
             "{% if enable_thinking is defined and enable_thinking %}{{ '<think>\\n' }}{% else %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"),
         .hashes = {{0x5c4ea6d09f6240ee, 0xcfe5210883a9b2d0}},
         .marks = {"<|im_start|>", "ns.last_query_index %}", "<function=", "<|vision_start|>",
                   "enable_thinking is defined and enable_thinking is true"},
         .foreign = {"preserve_thinking"}},
    [CHAT_SMOLLM3] = {CHATML, .word = "smollm3", .think = "<think>\n\n</think>\n",
                      .system_default = "", .head = SMOL_HEAD, .one_system = true,
                      .empty_system = SMOL_THINKS, .empty_system_no_think = SMOL ".",
                      .thinking = CHAT_THINKING_SMOL, .jinja = JINJA_SMOLLM3,
                      .marks = {"<|im_start|>", "named SmolLM", "Knowledge Cutoff Date: June 2025",
                                "## Custom Instructions", "/system_override", "xml_tools"}},
    [CHAT_LLAMA3_META] = {LLAMA3, .word = "meta-llama3", .trims = true,
                          .jinja = JINJA_LLAMA3("message['content'] | trim"),
                          .hashes = {{0xfef413d669ab8165, 0x311fcfd4a2b4804b}},
                          .marks = {"<|start_header_id|>", "<|eot_id|>",
                                    "message['content'] | trim", "bos_token"},
                          .foreign = {"tools", "Date", "system"}},
    [CHAT_LLAMA31] = {LLAMA3, .word = "llama3.1", .system_default = "", .head = LLAMA_HEAD,
                      .trims = true, .tools = CHAT_TOOLS_LLAMA,
                      .hashes = {{0x6bbcf45e8e0a76b2, 0xd854c4ad42ef7805}},
                      .jinja = JINJA_LLAMA31(""),
                      .marks = {"<|start_header_id|>", "<|eot_id|>",
                                "Cutting Knowledge Date: December 2023",
                                "date_string = \"26 Jul 2024\"", "builtin_tools"},
                      .foreign = {"strftime_now", "image"}},
    [CHAT_LLAMA32] = {LLAMA3, .word = "llama3.2", .system_default = "", .head = LLAMA_HEAD,
                      .trims = true, .tools = CHAT_TOOLS_LLAMA,
                      .hashes = {{0xd3f991f26e08410b, 0x72aae6836d758abc}},
                      .jinja = JINJA_LLAMA31("{# llama3.2 #}"),
                      .marks = {"<|start_header_id|>", "<|eot_id|>",
                                "Cutting Knowledge Date: December 2023",
                                "strftime_now(\"%d %b %Y\")"},
                      .foreign = {"builtin_tools", "image"}},
    [CHAT_GEMMA] = {GEMMA, .word = "gemma", .system = CHAT_SYSTEM_REFUSED,
                    .jinja =
                        JINJA_GEMMA("{% if messages[0]['role'] == 'system' %}"
                                    "{{ raise_exception('System role not supported') }}{% endif %}",
                                    "messages", ""),
                    .hashes = {{0x94a99266813c92a5, 0x746268be160bbece}},
                    .marks = {"<start_of_turn>", "<end_of_turn>", "System role not supported",
                              "| trim"},
                    .foreign = {"tools", "first_user_prefix"}},
    [CHAT_GEMMA3] = {GEMMA, .word = "gemma3", .system = CHAT_SYSTEM_FIRST_USER,
                     .jinja = JINJA_GEMMA(JINJA_TAKE, "turns", "(system if loop.first else '') + "),
                     .hashes = {{0x7be3cddfddebd59b, 0xa5cdd134c2f84b73}},
                     .marks = {"<start_of_turn>", "<end_of_turn>", "first_user_prefix", "| trim"},
                     .foreign = {"tools", "System role not supported", "declaration"}},
    [CHAT_MISTRAL] = {MISTRAL, .word = "mistral", .jinja = JINJA_MISTRAL(" ", " | trim"),
                      .before = {"", "[INST] ", " "}, .trims_answers = true,
                      .marks = {"\"[INST] \" + system_message",
                                "\"[INST] \" + message[\"content\"] + \"[/INST]\"",
                                "\" \" + message[\"content\"]|trim + eos_token"},
                      .foreign = {"[SYSTEM_PROMPT]"}},
    [CHAT_MISTRAL_NEMO] = {MISTRAL, .word = "mistral-nemo", .jinja = JINJA_MISTRAL("", ""),
                           .before = {"", "[INST]", ""},
                           .marks = {"\"[INST]\" + system_message",
                                     "\"[INST]\" + message[\"content\"] + \"[/INST]\"",
                                     "message[\"content\"] + eos_token"},
                           .foreign = {"[SYSTEM_PROMPT]"}},
    [CHAT_PHI3] = {PHI3, .word = "phi3",
                   .jinja = JINJA_PLAIN("<|", "|>\\n", "<|end|>\\n", "<|assistant|>\\n"),
                   .before = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"}, .tail = "\n",
                   .after = "<|end|>\n",
                   .hashes = {{0x49a001119ed34c86, 0x4771e522f3eedb06},
                              {0x4b5de741df4671f9, 0x063e709b363ab0ab}},
                   .marks = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
                             "{{ eos_token }}"},
                   .foreign = {"<|im_start|>", "trim", "tools", "think"}},
    [CHAT_PHI4] = {.word = "phi4",
                   .jinja = JINJA_PLAIN("<|im_start|>", "<|im_sep|>", "<|im_end|>",
                                        "<|im_start|>assistant<|im_sep|>"),
                   .specials = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
                   .end_special = 2,
                   .begin = "",
                   .before = {"<|im_start|>system<|im_sep|>", "<|im_start|>user<|im_sep|>",
                              "<|im_start|>assistant<|im_sep|>"},
                   .end = "<|im_end|>",
                   .tail = "",
                   .after = "<|im_end|>",
                   .marks = {"<|im_start|>system<|im_sep|>", "<|im_start|>user<|im_sep|>",
                             "<|im_start|>assistant<|im_sep|>"},
                   .foreign = {"think", "You are ", "tools"}},
    [CHAT_PHI4_MINI] =
        {PHI3, .word = "phi4-mini", .jinja = JINJA_PLAIN("<|", "|>", "<|end|>", "<|assistant|>"),
         .before = {"<|system|>", "<|user|>", "<|assistant|>"}, .tail = "", .after = "<|end|>",
         .marks = {"'<|' + message['role'] + '|>'", "<|end|>", "eos_token", "<|tool|>"},
         .foreign = {"think"}},
};

const char *const chat_words[] = {"none",
                                  "chatml",
                                  "llama3",
                                  "smollm2",
                                  "qwen2",
                                  "qwen2.5",
                                  "qwen3",
                                  "qwen3-instruct",
                                  "qwen3-thinking",
                                  "qwen3.5",
                                  "qwen3.5-nothink",
                                  "smollm3",
                                  "meta-llama3",
                                  "llama3.1",
                                  "llama3.2",
                                  "gemma",
                                  "gemma3",
                                  "mistral",
                                  "mistral-nemo",
                                  "phi3",
                                  "phi4",
                                  "phi4-mini",
                                  "auto",
                                  NULL};
_Static_assert(sizeof chat_words / sizeof chat_words[0] == CHAT_AUTO + 2, "a word for every kind");

const struct chat_template *chat_template_of(enum chat_kind kind)
{
    assert(kind < CHAT_KIND_COUNT);
    return &templates[kind];
}

/* Returns true when the text has all of the words, or (`any`) one of them. */
static bool has_words(const char *text, const char *const *words, bool any)
{
    size_t found = 0, count = 0;
    for (; count < CHAT_WORDS_MAX && words[count] != NULL; count++)
        found += strstr(text, words[count]) != NULL;
    return any ? found > 0 : found == count && count > 0;
}

enum chat_kind chat_recognise(const char *jinja, bool *out_exact)
{
    size_t count = strlen(jinja);
    const char *text = chat_strip(jinja, &count);
    const struct document_hash hash = document_hash_of(text, count);
    *out_exact = true;
    for (int kind = CHAT_NONE + 1; kind < CHAT_KIND_COUNT; kind++) {
        const struct chat_template *template = &templates[kind];
        if (template->jinja != NULL && strcmp(template->jinja, jinja) == 0)
            return (enum chat_kind)kind;
        for (size_t i = 0; i < sizeof template->hashes / sizeof template->hashes[0]; i++)
            if (hash.low == template->hashes[i].low && hash.high == template->hashes[i].high)
                return (enum chat_kind)kind;
    }
    *out_exact = false;
    for (int kind = CHAT_NONE + 1; kind < CHAT_KIND_COUNT; kind++)
        if (has_words(jinja, templates[kind].marks, false) &&
            !has_words(jinja, templates[kind].foreign, true))
            return (enum chat_kind)kind;
    return CHAT_NONE;
}
