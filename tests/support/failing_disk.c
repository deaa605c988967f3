/* Makes the Nth rename or write below FAIL_BELOW fail with FAIL_ERRNO: a disk or a quota that fails in the middle.
   Loaded with LD_PRELOAD; built by tests/run/test_failing_disk.py. FAIL_CALL is `rename` or `write`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int calls;

static int fails(const char *call, const char *path) {
    const char *below = getenv("FAIL_BELOW"), *name = getenv("FAIL_CALL");
    if (!below || !name || strcmp(name, call) || strncmp(path, below, strlen(below))) return 0;
    if (__sync_add_and_fetch(&calls, 1) != atoi(getenv("FAIL_NUMBER"))) return 0;
    errno = atoi(getenv("FAIL_ERRNO"));
    return 1;
}

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    return fails("rename", to) ? -1 : real(from, to);
}

static int write_fails(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return fails("write", path);
}

ssize_t write(int file, const void *data, size_t size) {
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    return write_fails(file) ? -1 : real(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    ssize_t (*real)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "writev");
    return write_fails(file) ? -1 : real(file, parts, count);
}
