/* A load generator on librdkafka, so that what is measured is the broker and not a Python client.
 *
 *   load produce  bootstrap=… topic=… count=… size=… [one=1] [seconds=…] [transaction=messages in each]
 *   load consume  bootstrap=… topic=… count=… partitions=…
 *   load latency  bootstrap=… topic=… count=… size=…            one message at a time, each awaited
 *   load endtoend bootstrap=… topic=… count=… size=… rate=…     from produce to consume, into a new topic
 *   load transactions bootstrap=… topic=… count=… messages=… size=… producers=…    each begun, filled and committed
 *   load watch    bootstrap=… topic=… partitions=… rate=…       when nothing was accepted, until the input ends
 *
 * Arguments with a dot, and `acks`, go to librdkafka as they are. Prints one line of JSON.
 */
#include "common.h"
#include <librdkafka/rdkafka.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#define MAX_BATCH 10000
#define MAX_PRODUCERS 64

static long delivered, failed, consumed;
static double *latencies;
static void (*on_accepted)(int partition);

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
    if (on_accepted && !message->err) on_accepted(message->partition);
}

static rd_kafka_t *connect_as(rd_kafka_type_t type, const char *transactional_id) {
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
    if (transactional_id) set(conf, "transactional.id", transactional_id);
    for (int i = 0; i < argument_count; i++)
        if (strchr(keys[i], '.') || !strcmp(keys[i], "acks")) set(conf, keys[i], values[i]);
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (!client) die("%s", error);
    return client;
}

static rd_kafka_t *connect_client(rd_kafka_type_t type) { return connect_as(type, NULL); }

static rd_kafka_t *connect_producer(const char *transactional_id) {
    return connect_as(RD_KAFKA_PRODUCER, transactional_id);
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

static void check(rd_kafka_error_t *error) {
    if (error) die("transaction: %s", rd_kafka_error_string(error));
}

static void produce(void) {
    long count = number("count", NULL);
    size_t size = number("size", "1024");
    long in_each = number("transaction", "0");
    rd_kafka_t *client = in_each ? connect_producer(text("topic", NULL)) : connect_client(RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, text("topic", NULL), NULL);
    char *pool = random_text(POOL_SIZE + size);
    if (in_each) {
        check(rd_kafka_init_transactions(client, 60000));
        check(rd_kafka_begin_transaction(client));
    }
    warm_up(client, topic, pool, size);
    double start = now(), end = start + number("seconds", "1000000");
    for (long i = 0; i < count; i++) {
        if (i % 256 == 0 && now() > end) count = i;
        if (in_each && i && i % in_each == 0) {
            check(rd_kafka_commit_transaction(client, 60000));
            check(rd_kafka_begin_transaction(client));
        }
        send_one(client, topic, value_at(pool, i, size), size);
        if (i % 256 == 0) rd_kafka_poll(client, 0);
    }
    while (delivered < count) rd_kafka_poll(client, 100);
    if (in_each) check(rd_kafka_commit_transaction(client, 60000));
    double seconds = now() - start;
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"bytes\": %ld, \"failed\": %ld}\n", seconds, count,
           count * (long)size, failed);
}

static void print_latencies(long count, double seconds) {
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"failed\": %ld, ", seconds, count, failed);
    print_percentiles(latencies, count);
    puts("}");
}

/* Transactions, by several producers at once, each of which ends one before it begins the next. A producer is bound to a
 * transactional id of its own. All begin together once each has its producer id; the times of the first tenth are not
 * kept. */
static long transactions_each, messages_each;
static double *transaction_times;
static pthread_barrier_t all_are_ready;

static void *run_transactions(void *argument) {
    long number_of_producer = (long)argument, skipped = transactions_each / 10;
    size_t size = number("size", "100");
    char id[64];
    snprintf(id, sizeof id, "%s-%ld", text("topic", NULL), number_of_producer);
    rd_kafka_t *client = connect_producer(id);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, text("topic", NULL), NULL);
    char *pool = random_text(POOL_SIZE + size);
    check(rd_kafka_init_transactions(client, 60000));
    pthread_barrier_wait(&all_are_ready);
    for (long i = -skipped; i < transactions_each; i++) {
        double start = now();
        check(rd_kafka_begin_transaction(client));
        for (long j = 0; j < messages_each; j++) send_one(client, topic, value_at(pool, j, size), size);
        check(rd_kafka_commit_transaction(client, 60000));
        if (i >= 0) transaction_times[number_of_producer * transactions_each + i] = now() - start;
    }
    return NULL;
}

static void transactions(void) {
    long producers = number("producers", "1");
    pthread_t threads[MAX_PRODUCERS];
    if (producers > MAX_PRODUCERS) die("at most %d producers", MAX_PRODUCERS);
    transactions_each = number("count", NULL) / producers, messages_each = number("messages", "100");
    latencies = transaction_times = calloc(producers * transactions_each, sizeof *transaction_times);
    pthread_barrier_init(&all_are_ready, NULL, producers + 1);
    for (long i = 0; i < producers; i++) pthread_create(&threads[i], NULL, run_transactions, (void *)i);
    pthread_barrier_wait(&all_are_ready);
    double begin = now();
    for (long i = 0; i < producers; i++) pthread_join(threads[i], NULL);
    print_latencies(producers * transactions_each, now() - begin);
}

static rd_kafka_queue_t *assign_all(rd_kafka_t *client, const char *topic, long partitions, int64_t offset) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (long i = 0; i < partitions; i++) rd_kafka_topic_partition_list_add(list, topic, i)->offset = offset;
    rd_kafka_poll_set_consumer(client);
    if (rd_kafka_assign(client, list)) die("cannot assign");
    return rd_kafka_queue_get_consumer(client);
}

static void await_first(rd_kafka_queue_t *queue) {
    for (int got = 0; !got;) {
        rd_kafka_message_t *message = rd_kafka_consume_queue(queue, 1000);
        if (!message) continue;
        got = !message->err;
        rd_kafka_message_destroy(message);
    }
}

/* A batch is asked for only as large as what is still to come, or its call would wait for the rest in vain. */
static void consume(void) {
    long count = number("count", NULL), bytes = 0;
    rd_kafka_t *client = connect_client(RD_KAFKA_CONSUMER);
    rd_kafka_queue_t *queue =
        assign_all(client, text("topic", NULL), number("partitions", "1"), RD_KAFKA_OFFSET_BEGINNING);
    static rd_kafka_message_t *messages[MAX_BATCH];
    double start = now();
    await_first(queue); /* the one with which the producer warmed up */
    double first = now();
    while (consumed < count) {
        long left = count - consumed;
        ssize_t got = rd_kafka_consume_batch_queue(queue, 1000, messages, left < MAX_BATCH ? left : MAX_BATCH);
        if (now() - start > 300) die("consumed %ld of %ld in 300 s", consumed, count);
        for (ssize_t i = 0; i < got; i++) {
            if (!messages[i]->err) consumed++, bytes += messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
    }
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"bytes\": %ld, \"first_seconds\": %.6f}\n", now() - start,
           consumed, bytes, first - start);
}

static void latency(void) {
    long count = number("count", NULL), skipped = count / 10;
    size_t size = number("size", "100");
    rd_kafka_t *client = connect_client(RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, text("topic", NULL), NULL);
    char *value = random_text(size);
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
    print_latencies(count, now() - begin);
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
        assign_all(consumer, text("topic", NULL), number("partitions", "1"), RD_KAFKA_OFFSET_BEGINNING);
    await_first(queue);
    pthread_t receiver;
    pthread_create(&receiver, NULL, receive, queue);
    double start = now();
    for (long i = 0; i < count; i++) {
        sleep_until(start + i * interval);
        double sent = now();
        memcpy(value, &sent, sizeof sent);
        send_one(producer, topic, value, size);
        rd_kafka_poll(producer, 0);
    }
    pthread_join(receiver, NULL);
    print_latencies(count, now() - start);
}

#define MAX_GAPS 10000
#define MAX_WATCHED 100
static struct { int partition; double begin, end; } gaps[MAX_GAPS];
static int gap_count;
static double accepted_at[MAX_WATCHED], shortest_gap;

static void note_gap(int partition) {
    double begin = accepted_at[partition], end = accepted_at[partition] = now();
    if (begin == 0 || end - begin < shortest_gap || gap_count == MAX_GAPS) return;
    gaps[gap_count].partition = partition, gaps[gap_count].begin = begin, gaps[gap_count++].end = end;
}

static int input_ended(void) {
    struct pollfd input = {0, POLLIN, 0};
    return poll(&input, 1, 0) > 0;
}

/* A producer that writes to all partitions in turn, to each the numbers from 0 on, whatever happens to their leaders.
 * It notes when a partition has accepted nothing for longer than gap_ms; times are those of the monotonic clock. */
static void watch(void) {
    long partitions = number("partitions", "1"), sent = 0;
    if (partitions > MAX_WATCHED) die("at most %d partitions are watched", MAX_WATCHED);
    double interval = 1.0 / number("rate", "1000");
    shortest_gap = number("gap_ms", "20") / 1e3;
    on_accepted = note_gap;
    rd_kafka_t *client = connect_client(RD_KAFKA_PRODUCER);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, text("topic", NULL), NULL);
    char value[100];
    double start = now();
    for (int ready = 0, ended = 0; !ended || delivered < sent; rd_kafka_poll(client, 1)) {
        ended = ended || input_ended();
        for (; !ended && now() >= start + sent * interval; sent++) {
            memset(value, ' ', sizeof value);
            snprintf(value, sizeof value, "%ld", sent / partitions);
            if (rd_kafka_produce(topic, sent % partitions, RD_KAFKA_MSG_F_COPY, value, sizeof value, NULL, 0, NULL))
                die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        }
        if (!ready && delivered >= partitions) ready = 1, puts("ready"), fflush(stdout);
    }
    printf("{\"messages\": %ld, \"failed\": %ld, \"gaps\": [", delivered, failed);
    for (int i = 0; i < gap_count; i++)
        printf("%s[%d, %.6f, %.6f]", i ? ", " : "", gaps[i].partition, gaps[i].begin, gaps[i].end);
    puts("]}");
    failed = 0; /* it is told */
}

int main(int argc, char **argv) {
    if (argc < 2) die("load produce|consume|latency|endtoend|transactions|watch key=value …");
    parse_arguments(argc, argv);
    if (!strcmp(argv[1], "produce")) produce();
    else if (!strcmp(argv[1], "consume")) consume();
    else if (!strcmp(argv[1], "latency")) latency();
    else if (!strcmp(argv[1], "endtoend")) end_to_end();
    else if (!strcmp(argv[1], "transactions")) transactions();
    else if (!strcmp(argv[1], "watch")) watch();
    else die("unknown mode %s", argv[1]);
    fflush(stdout);
    _exit(failed != 0);
}
