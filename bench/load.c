/* A load generator on librdkafka, so that what is measured is the broker and not a Python client.
 *
 *   load produce  bootstrap=… topic=… count=… size=… [one=1] [key=value of librdkafka …]
 *   load consume  bootstrap=… topic=… count=… partitions=…
 *   load latency  bootstrap=… topic=… count=… size=…            one message at a time, each awaited
 *   load endtoend bootstrap=… topic=… count=… size=… rate=…     from produce to consume at a fixed rate
 *
 * Arguments with a dot, and `acks`, go to librdkafka as they are. Prints one line of JSON.
 */
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_ARGUMENTS 64

static const char *keys[MAX_ARGUMENTS], *values[MAX_ARGUMENTS];
static int argument_count;
static long delivered, failed, consumed;
static double *latencies;

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static const char *text(const char *key, const char *fallback) {
    for (int i = 0; i < argument_count; i++)
        if (!strcmp(keys[i], key)) return values[i];
    if (!fallback) die("missing argument %s", key);
    return fallback;
}

static long number(const char *key, const char *fallback) { return atol(text(key, fallback)); }

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, key, value, error, sizeof error) != RD_KAFKA_CONF_OK) die("%s", error);
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) {
        if (!failed++) fprintf(stderr, "delivery failed: %s\n", rd_kafka_err2str(message->err));
    }
    delivered++;
}

static rd_kafka_t *connect_client(rd_kafka_type_t type) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char error[512];
    set(conf, "bootstrap.servers", text("bootstrap", NULL));
    if (type == RD_KAFKA_PRODUCER) {
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        set(conf, "queue.buffering.max.messages", "10000000");
        set(conf, "queue.buffering.max.kbytes", "1048576");
        set(conf, "acks", "all");
        if (number("one", "0")) {
            set(conf, "batch.num.messages", "1");
            set(conf, "linger.ms", "0");
            set(conf, "max.in.flight.requests.per.connection", "1000");
        }
    } else {
        set(conf, "group.id", "bench");
        set(conf, "enable.auto.commit", "false");
        set(conf, "queued.max.messages.kbytes", "1048576");
        set(conf, "fetch.message.max.bytes", "10485760");
        set(conf, "fetch.wait.max.ms", "100");
    }
    for (int i = 0; i < argument_count; i++)
        if (strchr(keys[i], '.') || !strcmp(keys[i], "acks")) set(conf, keys[i], values[i]);
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (!client) die("%s", error);
    return client;
}

/* Letters at random: a codec finds something to do, and nothing repeats. */
static char *random_bytes(size_t size) {
    char *bytes = malloc(size);
    unsigned state = 12345;
    for (size_t i = 0; i < size; i++) {
        state = state * 1103515245u + 12345u;
        bytes[i] = "abcdefghijklmnopqrstuvwxyz012345"[state >> 27];
    }
    return bytes;
}

static void send_one(rd_kafka_t *client, rd_kafka_topic_t *topic, char *value, size_t size) {
    while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, value, size, NULL, 0, NULL)) {
        if (errno != ENOBUFS) die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(client, 10);
    }
}

static void warm_up(rd_kafka_t *client, rd_kafka_topic_t *topic, char *value, size_t size) {
    send_one(client, topic, value, size);
    while (delivered < 1) rd_kafka_poll(client, 100);
    delivered = 0;
}

static void produce(void) {
    long count = number("count", NULL);
    size_t size = number("size", "1024"), spread = 1 << 20;
    rd_kafka_t *client = connect_client(RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, text("topic", NULL), NULL);
    char *values = random_bytes(spread + size);
    warm_up(client, topic, values, size);
    double start = now();
    for (long i = 0; i < count; i++) {
        send_one(client, topic, values + (size_t)(i * 131) % spread, size);
        if (i % 256 == 0) rd_kafka_poll(client, 0);
    }
    while (delivered < count) rd_kafka_poll(client, 100);
    double seconds = now() - start;
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"bytes\": %ld, \"failed\": %ld}\n", seconds, count,
           count * (long)size, failed);
}

static rd_kafka_queue_t *assign_all(rd_kafka_t *client, const char *topic, long partitions, int64_t offset) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (long i = 0; i < partitions; i++) rd_kafka_topic_partition_list_add(list, topic, i)->offset = offset;
    rd_kafka_poll_set_consumer(client);
    if (rd_kafka_assign(client, list)) die("cannot assign");
    return rd_kafka_queue_get_consumer(client);
}

static void consume(void) {
    long count = number("count", NULL), bytes = 0;
    rd_kafka_t *client = connect_client(RD_KAFKA_CONSUMER);
    rd_kafka_queue_t *queue =
        assign_all(client, text("topic", NULL), number("partitions", "1"), RD_KAFKA_OFFSET_BEGINNING);
    static rd_kafka_message_t *messages[10000];
    double start = now(), first = 0;
    while (consumed < count) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 1000, messages, 10000);
        if (now() - start > 300) die("consumed %ld of %ld in 300 s", consumed, count);
        for (ssize_t i = 0; i < got; i++) {
            if (!messages[i]->err) {
                if (!first) first = now();
                consumed++;
                bytes += messages[i]->len;
            }
            rd_kafka_message_destroy(messages[i]);
        }
    }
    double seconds = now() - start;
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"bytes\": %ld, \"first_seconds\": %.6f}\n", seconds, consumed,
           bytes, first - start);
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void print_percentiles(long count, double seconds) {
    qsort(latencies, count, sizeof *latencies, compare);
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, "
           "\"max_us\": %.1f, \"failed\": %ld}\n",
           seconds, count, latencies[count / 2] * 1e6, latencies[(long)(count * 0.99)] * 1e6,
           latencies[(long)(count * 0.999)] * 1e6, latencies[count - 1] * 1e6, failed);
}

static void latency(void) {
    long count = number("count", NULL), skipped = count / 10;
    size_t size = number("size", "100");
    rd_kafka_t *client = connect_client(RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, text("topic", NULL), NULL);
    char *value = random_bytes(size);
    warm_up(client, topic, value, size);
    latencies = malloc(count * sizeof *latencies);
    double begin = now();
    for (long i = -skipped; i < count; i++) {
        double start = now();
        long target = delivered + 1;
        send_one(client, topic, value, size);
        while (delivered < target) rd_kafka_poll(client, 1000);
        if (i >= 0) latencies[i] = now() - start;
    }
    print_percentiles(count, now() - begin);
}

static void *receive(void *argument) {
    rd_kafka_queue_t *queue = argument;
    long count = number("count", NULL);
    while (consumed < count) {
        rd_kafka_message_t *message = rd_kafka_consume_queue(queue, 1000);
        if (!message) continue;
        double sent;
        if (!message->err && message->len >= sizeof sent) {
            memcpy(&sent, message->payload, sizeof sent);
            if (sent > 0) latencies[consumed++] = now() - sent;
        }
        rd_kafka_message_destroy(message);
    }
    return NULL;
}

static void end_to_end(void) {
    long count = number("count", NULL);
    size_t size = number("size", "100");
    double interval = 1.0 / number("rate", "1000");
    rd_kafka_t *producer = connect_client(RD_KAFKA_PRODUCER), *consumer = connect_client(RD_KAFKA_CONSUMER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, text("topic", NULL), NULL);
    char *value = calloc(1, size);
    latencies = malloc(count * sizeof *latencies);
    warm_up(producer, topic, value, size);
    rd_kafka_queue_t *queue =
        assign_all(consumer, text("topic", NULL), number("partitions", "1"), RD_KAFKA_OFFSET_END);
    nanosleep(&(struct timespec){1, 0}, NULL);
    pthread_t receiver;
    pthread_create(&receiver, NULL, receive, queue);
    double start = now();
    for (long i = 0; i < count; i++) {
        double due = start + i * interval, pause = due - now();
        if (pause > 0) nanosleep(&(struct timespec){(time_t)pause, (long)((pause - (time_t)pause) * 1e9)}, NULL);
        double sent = now();
        memcpy(value, &sent, sizeof sent);
        send_one(producer, topic, value, size);
        rd_kafka_poll(producer, 0);
    }
    pthread_join(receiver, NULL);
    print_percentiles(count, now() - start);
}

int main(int argc, char **argv) {
    if (argc < 2) die("load produce|consume|latency|endtoend key=value …");
    for (int i = 2; i < argc && argument_count < MAX_ARGUMENTS; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) die("%s is not key=value", argv[i]);
        *equals = 0;
        keys[argument_count] = argv[i], values[argument_count++] = equals + 1;
    }
    if (!strcmp(argv[1], "produce")) produce();
    else if (!strcmp(argv[1], "consume")) consume();
    else if (!strcmp(argv[1], "latency")) latency();
    else if (!strcmp(argv[1], "endtoend")) end_to_end();
    else die("unknown mode %s", argv[1]);
    fflush(stdout);
    _exit(failed != 0);
}
