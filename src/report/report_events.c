/* Writes TensorBoard's event file, which W&B, aim and trackio import as well.
 *
 * The file is a sequence of records: length (64 bits), masked CRC-32C of the length, data, masked
 * CRC-32C of the data (tensorflow/core/lib/io/record_writer.h).  The data are protocol buffers
 * (tensorflow/core/util/event.proto and framework/summary.proto): Event { double wall_time = 1;
 * int64 step = 2; string file_version = 3; Summary summary = 5
 * }, Summary { Value value = 1 }, Value { string tag = 1; float simple_value = 2 }.  Records are
 * streamed, so that memory does not depend on their number.
 */
#include "report/report_events.h"

#include <math.h>

#include "base/crc32c.h"
#include "report/run_record.h"

#define FILE_NAME "events.out.tfevents.0.gpt-train"
/* A line has at most 200 numbers, which take 20 bytes each and their names. */
#define MESSAGE_BYTES 16384

struct message {
    unsigned char bytes[MESSAGE_BYTES];
    size_t count;
};

static void bytes_put(struct message *message, const void *bytes, size_t count)
{
    memcpy(message->bytes + message->count, bytes, count);
    message->count += count;
}

/* Writes a field's tag and a varint: its value or its length. */
static void varint_put(struct message *message, unsigned char tag, uint64_t value)
{
    message->bytes[message->count++] = tag;
    for (; value >= 0x80; value >>= 7)
        message->bytes[message->count++] = (unsigned char)(value | 0x80);
    message->bytes[message->count++] = (unsigned char)value;
}

static uint32_t masked_crc(const void *bytes, size_t count)
{
    const uint32_t crc = file_crc32c(0, bytes, count);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static enum gt_status record_put(struct file_replacement *file, const struct message *message)
{
    unsigned char record[MESSAGE_BYTES + 16];
    const uint64_t length = message->count;
    const uint32_t sums[] = {masked_crc(&length, sizeof length),
                             masked_crc(message->bytes, message->count)};
    memcpy(record, &length, 8);
    memcpy(record + 8, &sums[0], 4);
    memcpy(record + 12, message->bytes, message->count);
    memcpy(record + 12 + message->count, &sums[1], 4);
    return file_replacement_write(file, record, message->count + 16);
}

static void value_put(struct message *summary, const char *name, double number)
{
    struct message value = {.count = 0};
    const float single = (float)number;
    varint_put(&value, 0x0a, strlen(name));
    bytes_put(&value, name, strlen(name));
    value.bytes[value.count++] = 0x15;
    bytes_put(&value, &single, sizeof single);
    varint_put(summary, 0x0a, value.count);
    bytes_put(summary, value.bytes, value.count);
}

static enum gt_status line_convert(void *context, const json_t *line)
{
    struct message event = {.count = 0}, summary = {.count = 0};
    const double time = json_number_value(json_object_get(line, "time"));
    const char *name;
    json_t *value;
    if (json_object_get(line, "start"))
        return GT_OK;
    json_object_foreach((json_t *)line, name, value)
    {
        const bool is_value = strcmp(name, "iter") != 0 && strcmp(name, "time") != 0;
        if (is_value && (json_is_number(value) || json_is_null(value)))
            value_put(&summary, name, json_is_null(value) ? (double)NAN : json_number_value(value));
    }
    event.bytes[event.count++] = 0x09;
    bytes_put(&event, &time, sizeof time);
    varint_put(&event, 0x10, (uint64_t)json_integer_value(json_object_get(line, "iter")));
    varint_put(&event, 0x2a, summary.count);
    bytes_put(&event, summary.bytes, summary.count);
    return record_put(context, &event);
}

enum gt_status report_events_write(const char *run, const char *path)
{
    static const char version[] = "brain.Event:2";
    struct metrics_file source;
    struct file_replacement file;
    struct message head = {.count = 0};
    metrics_file_find(run, &source);
    TRY(file_make_folders(path));
    TRY(file_replacement_begin(&file, FILE_IN(path, FILE_NAME), NULL));
    varint_put(&head, 0x1a, sizeof version - 1);
    bytes_put(&head, version, sizeof version - 1);
    enum gt_status status = record_put(&file, &head);
    THEN(status, metrics_read(&source, line_convert, &file));
    return file_replacement_end(&file, status);
}
