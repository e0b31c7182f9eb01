/* The physical limit of this machine: what a broker would do if it did nothing but move bytes.
 *
 *   limit receive file=… bytes=…     loopback socket to file, 1 MB at a time
 *   limit send    file=… bytes=…     the same file to a loopback socket, by sendfile
 *   limit echo    count=… size=…     round trip of a small message over loopback
 *   limit sync    file=… count=… size=…   append and fdatasync
 *
 * A forked child is the other end of the socket, so the CPU seconds printed are of the broker's side alone.
 */
#include "common.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE (1 << 20)

static char piece[PIECE];

static void need(int held, const char *what) {
    if (!held) die("%s: %s", what, strerror(errno));
}

/* Two ends of a TCP connection over loopback; the second one is in a child process that runs `other`. */
static int connect_child(void (*other)(int, long), long amount) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    need(!bind(listener, (struct sockaddr *)&address, sizeof address), "bind");
    need(!listen(listener, 1), "listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    if (!fork()) {
        int end = socket(AF_INET, SOCK_STREAM, 0);
        need(!connect(end, (struct sockaddr *)&address, sizeof address), "connect");
        setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        other(end, amount);
        _exit(0);
    }
    int end = accept(listener, NULL, NULL);
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return end;
}

static double seconds_of(struct timeval t) { return t.tv_sec + t.tv_usec / 1e6; }

static void print_rate(double seconds, long bytes) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"seconds\": %.6f, \"bytes\": %ld, \"user_s\": %.6f, \"kernel_s\": %.6f}\n", seconds, bytes,
           seconds_of(usage.ru_utime), seconds_of(usage.ru_stime));
}

static void pour(int end, long bytes) {
    for (long sent = 0; sent < bytes; sent += PIECE) {
        for (ssize_t part = 0, took; part < PIECE; part += took)
            need((took = write(end, piece + part, PIECE - part)) > 0, "write");
    }
}

static void drain(int end, long bytes) {
    ssize_t got;
    for (long received = 0; received < bytes; received += got)
        need((got = read(end, piece, PIECE)) > 0, "read");
    need(write(end, piece, 1) == 1, "write");
}

static void receive_to_file(long bytes) {
    int file = open(text("file", NULL), O_CREAT | O_TRUNC | O_WRONLY, 0600), end = connect_child(pour, bytes);
    double start = now();
    ssize_t got;
    for (long received = 0; received < bytes; received += got) {
        need((got = recv(end, piece, PIECE, MSG_WAITALL)) > 0, "recv");
        need(write(file, piece, got) == got, "write");
    }
    print_rate(now() - start, bytes);
}

static void send_file(long bytes) {
    int file = open(text("file", NULL), O_RDONLY), end = connect_child(drain, bytes);
    need(file >= 0, "open");
    double start = now();
    for (off_t sent = 0; sent < bytes;) need(sendfile(end, file, &sent, PIECE) > 0, "sendfile");
    need(read(end, piece, 1) == 1, "read");
    print_rate(now() - start, bytes);
}

static void echo(int end, long count) {
    (void)count;
    for (ssize_t got; (got = read(end, piece, PIECE)) > 0;) need(write(end, piece, got) == got, "write");
}

static void print_latencies(double *latencies, long count) {
    printf("{\"messages\": %ld, ", count);
    print_percentiles(latencies, count);
    puts("}");
}

static void round_trips(long count, size_t size) {
    double *latencies = malloc(count * sizeof *latencies);
    int end = connect_child(echo, count);
    for (long i = 0; i < count; i++) {
        double start = now();
        need(write(end, piece, size) == (ssize_t)size, "write");
        need(recv(end, piece, size, MSG_WAITALL) == (ssize_t)size, "recv");
        latencies[i] = now() - start;
    }
    close(end);
    print_latencies(latencies, count);
}

static void syncs(long count, size_t size) {
    double *latencies = malloc(count * sizeof *latencies);
    int file = open(text("file", NULL), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    for (long i = 0; i < count; i++) {
        double start = now();
        need(write(file, piece, size) == (ssize_t)size && !fdatasync(file), "write");
        latencies[i] = now() - start;
    }
    print_latencies(latencies, count);
}

int main(int argc, char **argv) {
    if (argc < 2) die("limit receive|send|echo|sync key=value …");
    parse_arguments(argc, argv);
    long bytes = number("bytes", "0") / PIECE * PIECE, count = number("count", "1");
    size_t size = number("size", "100");
    if (!strcmp(argv[1], "receive")) receive_to_file(bytes);
    else if (!strcmp(argv[1], "send")) send_file(bytes);
    else if (!strcmp(argv[1], "echo")) round_trips(count, size);
    else if (!strcmp(argv[1], "sync")) syncs(count, size);
    else die("unknown mode %s", argv[1]);
    fflush(stdout);
    wait(NULL);
    return 0;
}
