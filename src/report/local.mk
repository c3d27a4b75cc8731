# Reading metrics.jsonl, and what is made of it: the report's page, TensorBoard's file.
libgpttrain_a_SOURCES += src/report/report_events.c src/report/report_events.h src/report/report_page.c src/report/report_page.h src/report/run_record.c src/report/run_record.h
