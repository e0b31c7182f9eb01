/* Many connections that each send the same request again and again, the next one once the last is answered.
 *
 *   replay run port=… request=FILE connections=… seconds=…
 *
 * FILE holds one request of Kafka's protocol with its length in front; a response's first four bytes are its
 * length. With a Produce request this is a closed loop of N synchronous producers; with a Fetch that waits
 * for records that never come, it is N idle consumers. Says "ready" once it has run for a second, and prints
 * one line of JSON at the end.
 */
#include "common.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_SIZE 65536

typedef struct {
    int socket;
    long left;           /* bytes of the response that are still to come */
    unsigned char head[4];
    int head_got;
    double sent;
} connection_t;

static char request[READ_SIZE];
static ssize_t request_size;
static double *latencies;
static long responses, capacity = 1 << 20;

static void read_request(const char *path) {
    int file = open(path, O_RDONLY);
    request_size = file < 0 ? -1 : read(file, request, sizeof request);
    if (request_size <= 0) die("cannot read %s", path);
    close(file);
}

static void send_request(connection_t *connection) {
    connection->sent = now();
    if (write(connection->socket, request, request_size) != request_size) die("a request was not taken whole");
    connection->head_got = 0, connection->left = -1;
}

static void open_connection(connection_t *connection, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connection->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (connection->socket < 0) die("socket: %s", strerror(errno));
    if (connect(connection->socket, (struct sockaddr *)&address, sizeof address))
        die("connect: %s", strerror(errno));
    setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    fcntl(connection->socket, F_SETFL, O_NONBLOCK);
}

static void record(double latency) {
    if (responses == capacity || !latencies)
        latencies = realloc(latencies, (capacity = latencies ? capacity * 2 : capacity) * sizeof *latencies);
    latencies[responses++] = latency;
}

/* True if the whole response is there. */
static int take(connection_t *connection, unsigned char *bytes, ssize_t got) {
    while (got > 0 && connection->head_got < 4) connection->head[connection->head_got++] = *bytes++, got--;
    if (connection->head_got < 4) return 0;
    if (connection->left < 0) {
        unsigned char *head = connection->head;
        connection->left = (long)head[0] << 24 | head[1] << 16 | head[2] << 8 | head[3];
    }
    connection->left -= got;
    return connection->left == 0;
}

static void on_readable(connection_t *connection) {
    static unsigned char buffer[READ_SIZE];
    ssize_t got = read(connection->socket, buffer, sizeof buffer);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) die("the server closed a connection");
    if (!take(connection, buffer, got)) return;
    record(now() - connection->sent);
    send_request(connection);
}

static void loop_until(int poller, double end) {
    struct epoll_event events[256];
    for (double left; (left = end - now()) > 0;) {
        int count = epoll_wait(poller, events, 256, (int)(left * 1000) + 1);
        for (int i = 0; i < count; i++) on_readable(events[i].data.ptr);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) die("replay run key=value …");
    parse_arguments(argc, argv);
    read_request(text("request", NULL));
    long count = number("connections", "1");
    connection_t *connections = calloc(count, sizeof *connections);
    int poller = epoll_create1(0);
    for (long i = 0; i < count; i++) {
        open_connection(&connections[i], number("port", NULL));
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        epoll_ctl(poller, EPOLL_CTL_ADD, connections[i].socket, &event);
        send_request(&connections[i]);
    }
    loop_until(poller, now() + 1); /* settle */
    responses = 0;
    puts("ready");
    fflush(stdout);
    double start = now();
    loop_until(poller, start + number("seconds", NULL));
    printf("{\"seconds\": %.6f, \"requests\": %ld", now() - start, responses);
    if (responses) printf(", "), print_percentiles(latencies, responses);
    puts("}");
    return 0;
}
