/* Checks a data set against its manifest: fields that the manifest has are compared, missing ones
 * pass. */
#include "data/manifest.h"

#include "tests/unit/data_fixture.h"

static const int64_t tokens[] = {900, 100};

static enum gt_status check(struct data_fixture *fixture, const char *manifest)
{
    fixture_write(fixture, "manifest.json", manifest, strlen(manifest));
    fixture->line[0] = '\0';
    return manifest_check(fixture->folder, tokens, NULL);
}

#define OURS "{\"format\": \"gpt-train-manifest\", \"version\": 2"

TEST(compares_what_is_said)
{
    struct data_fixture fixture;
    fixture_open(&fixture);
    ck_assert_int_eq(manifest_check(fixture.folder, tokens, NULL), GT_OK);
    ck_assert_int_eq(
        check(&fixture, OURS ", \"train\": {\"tokens\": 900}, \"val\": {\"tokens\": 100}}"), GT_OK);
    ck_assert_int_eq(check(&fixture, OURS "}"), GT_OK);
    ck_assert_int_eq(check(&fixture, OURS ", \"tokenizer_hash\": \"crc32c:01234567\"}"),
                     GT_OK); /* there is none */
    ck_assert_int_eq(check(&fixture, "{\"train\": {\"tokens\": 1}}"),
                     GT_OK); /* another program's */
    ck_assert_str_eq(fixture.line, "");
    ck_assert_int_eq(check(&fixture, OURS ", \"train\": {\"tokens\": 901}}"), GT_DATA);
    ck_assert_ptr_nonnull(
        strstr(fixture.line, "lists 901 tokens for the train split, but its files hold 900"));
    ck_assert_int_eq(check(&fixture, OURS ", \"val\": {\"tokens\": 99}}"), GT_DATA);
    ck_assert_int_eq(check(&fixture, OURS), GT_DATA);
    fixture_close(&fixture);
}
