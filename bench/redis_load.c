/* The load generator for Redis Streams, on hiredis: same arguments, same values, same output as load.c.
 *
 * A topic of N partitions is N streams, `topic-0` to `topic-N-1`. Producing pipelines XADD with WINDOW of them
 * unanswered, which is Redis's way to be fast; consuming reads 1,000 entries at a time.
 */
#include "common.h"
#include <hiredis/hiredis.h>
#include <pthread.h>

#define WINDOW 1000

static double *latencies;

static redisContext *connect_client(void) {
    redisContext *client = redisConnect("127.0.0.1", number("port", NULL));
    if (!client || client->err) die("cannot connect: %s", client ? client->errstr : "no memory");
    return client;
}

static redisReply *reply_of(redisContext *client) {
    redisReply *reply = NULL;
    if (redisGetReply(client, (void **)&reply) != REDIS_OK) die("%s", client->errstr);
    if (reply->type == REDIS_REPLY_ERROR) die("%s", reply->str);
    return reply;
}

static void await_reply(redisContext *client) { freeReplyObject(reply_of(client)); }

static void append(redisContext *client, long partition, char *value, size_t size) {
    char stream[256];
    snprintf(stream, sizeof stream, "%s-%ld", text("topic", NULL), partition);
    const char *arguments[] = {"XADD", stream, "*", "v", value};
    size_t lengths[] = {4, strlen(stream), 1, 1, size};
    redisAppendCommandArgv(client, 5, arguments, lengths);
}

static void produce(void) {
    long count = number("count", NULL), partitions = number("partitions", "1");
    size_t size = number("size", "1024");
    char *pool = random_text(POOL_SIZE + size);
    redisContext *client = connect_client();
    double start = now();
    for (long i = 0; i < count; i++) {
        append(client, i % partitions, value_at(pool, i, size), size);
        if (i >= WINDOW) await_reply(client);
    }
    for (long i = count < WINDOW ? count : WINDOW; i > 0; i--) await_reply(client);
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"bytes\": %ld, \"failed\": 0}\n", now() - start, count,
           count * (long)size);
}

/* The value of an entry [id, ["v", value]]; its id is left in `last`. */
static redisReply *value_of(redisReply *entry, char last[64]) {
    snprintf(last, 64, "%s", entry->element[0]->str);
    return entry->element[1]->element[1];
}

/* Entries behind `last` as [[stream, [entry, …]]], or nil; with `wait`, not before there is one. */
static redisReply *read_stream(redisContext *client, long partition, const char *last, int wait) {
    char stream[256];
    snprintf(stream, sizeof stream, "%s-%ld", text("topic", NULL), partition);
    const char *waiting[] = {"XREAD", "COUNT", "1000", "BLOCK", "0", "STREAMS", stream, last};
    const char *at_once[] = {"XREAD", "COUNT", "1000", "STREAMS", stream, last};
    redisAppendCommandArgv(client, wait ? 8 : 6, wait ? waiting : at_once, NULL);
    return reply_of(client);
}

static long consume_partition(redisContext *client, long partition, long *bytes) {
    char last[64] = "0";
    for (long messages = 0;;) {
        redisReply *reply = read_stream(client, partition, last, 0);
        if (reply->type == REDIS_REPLY_NIL) return freeReplyObject(reply), messages;
        redisReply *entries = reply->element[0]->element[1];
        for (size_t i = 0; i < entries->elements; i++) *bytes += value_of(entries->element[i], last)->len;
        messages += entries->elements;
        freeReplyObject(reply);
    }
}

static void consume(void) {
    long count = number("count", NULL), messages = 0, bytes = 0;
    redisContext *client = connect_client();
    double start = now();
    for (long i = 0; i < number("partitions", "1"); i++) messages += consume_partition(client, i, &bytes);
    if (messages < count) die("%ld of %ld messages were there", messages, count);
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"bytes\": %ld, \"first_seconds\": 0}\n", now() - start, messages,
           bytes);
}

static void print_latencies(long count, double seconds) {
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"failed\": 0, ", seconds, count);
    print_percentiles(latencies, count);
    puts("}");
}

static void latency(void) {
    long count = number("count", NULL), skipped = count / 10;
    size_t size = number("size", "100");
    char *value = random_text(size);
    redisContext *client = connect_client();
    latencies = malloc(count * sizeof *latencies);
    double begin = now();
    for (long i = -skipped; i < count; i++) {
        double start = now();
        append(client, 0, value, size);
        await_reply(client);
        if (i >= 0) latencies[i] = now() - start;
    }
    print_latencies(count, now() - begin);
}

static void *receive(void *argument) {
    redisContext *client = connect_client();
    char last[64] = "0";
    double sent;
    (void)argument;
    for (long consumed = 0, count = number("count", NULL); consumed < count;) {
        redisReply *reply = read_stream(client, 0, last, 1), *entries = reply->element[0]->element[1];
        double arrived = now();
        for (size_t i = 0; i < entries->elements; i++) {
            memcpy(&sent, value_of(entries->element[i], last)->str, sizeof sent);
            latencies[consumed++] = arrived - sent;
        }
        freeReplyObject(reply);
    }
    return NULL;
}

static void end_to_end(void) {
    long count = number("count", NULL);
    size_t size = number("size", "100");
    double interval = 1.0 / number("rate", "1000");
    char *value = calloc(1, size);
    redisContext *client = connect_client();
    pthread_t receiver;
    latencies = malloc(count * sizeof *latencies);
    pthread_create(&receiver, NULL, receive, NULL);
    double start = now();
    for (long i = 0; i < count; i++) {
        sleep_until(start + i * interval);
        double sent = now();
        memcpy(value, &sent, sizeof sent);
        append(client, 0, value, size);
        await_reply(client);
    }
    pthread_join(receiver, NULL);
    print_latencies(count, now() - start);
}

int main(int argc, char **argv) {
    if (argc < 2) die("redis_load produce|consume|latency|endtoend key=value …");
    parse_arguments(argc, argv);
    if (!strcmp(argv[1], "produce")) produce();
    else if (!strcmp(argv[1], "consume")) consume();
    else if (!strcmp(argv[1], "latency")) latency();
    else if (!strcmp(argv[1], "endtoend")) end_to_end();
    else die("unknown mode %s", argv[1]);
    return 0;
}
