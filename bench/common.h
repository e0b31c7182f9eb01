/* What the load generators share: `key=value` arguments, a clock, values to send, percentiles.
 *
 * All of them print one line of JSON. They include this file and nothing else of ours, so each is built with
 * one call of the compiler.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_ARGUMENTS 64
#define POOL_SIZE (8u << 20)

static const char *keys[MAX_ARGUMENTS], *values[MAX_ARGUMENTS];
static int argument_count;

static inline void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static inline void sleep_until(double due) {
    double pause = due - now();
    if (pause > 0) nanosleep(&(struct timespec){(time_t)pause, (long)((pause - (time_t)pause) * 1e9)}, NULL);
}

static inline void parse_arguments(int argc, char **argv) {
    for (int i = 2; i < argc && argument_count < MAX_ARGUMENTS; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) die("%s is not key=value", argv[i]);
        *equals = 0;
        keys[argument_count] = argv[i], values[argument_count++] = equals + 1;
    }
}

static inline const char *text(const char *key, const char *fallback) {
    for (int i = 0; i < argument_count; i++)
        if (!strcmp(keys[i], key)) return values[i];
    if (!fallback) die("missing argument %s", key);
    return fallback;
}

static inline long number(const char *key, const char *fallback) { return atol(text(key, fallback)); }

/* Words of a small vocabulary in random order, and numbers: about as compressible as lines of a log. */
static inline char *random_text(size_t size) {
    char vocabulary[256][24], *bytes = malloc(size);
    unsigned state = 12345;
    for (int word = 0; word < 256; word++)
        for (int i = 0; i < 24; i++) vocabulary[word][i] = 'a' + ((state = state * 1103515245u + 12345u) >> 24) % 26;
    for (size_t i = 0; i < size;) {
        state = state * 1103515245u + 12345u;
        char digits[16], *piece = vocabulary[state >> 24];
        size_t length = 6 + (state >> 24) % 18;
        if ((state >> 20 & 3) == 0) piece = digits, length = snprintf(digits, sizeof digits, "%u", state >> 14);
        for (size_t j = 0; j < length && i < size; j++) bytes[i++] = piece[j];
        if (i < size) bytes[i++] = ' ';
    }
    return bytes;
}

/* The i-th value of a pool from random_text(POOL_SIZE + size): neighbours share nothing. */
static inline char *value_at(char *pool, long i, size_t size) { return pool + (i * (size + 131)) % POOL_SIZE; }

static inline int compare_doubles(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Prints without braces, so that a caller can add its own fields. */
static inline void print_percentiles(double *latencies, long count) {
    qsort(latencies, count, sizeof *latencies, compare_doubles);
    printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f", latencies[count / 2] * 1e6,
           latencies[(long)(count * 0.99)] * 1e6, latencies[(long)(count * 0.999)] * 1e6,
           latencies[count - 1] * 1e6);
}
