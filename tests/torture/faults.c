/* A library for LD_PRELOAD. It counts the operations that change or map files below one folder and fails the
   n-th of them once, with an errno, by SIGKILL, or by a loss of power: SIGKILL after every file below the folder
   has lost what was written since its last fsync. tests/torture/shim.py compiles and arms it.

   Counted: open for writing, write, fsync, rename, mkdir, unlink, rmdir, truncate, link, mmap of a file, copies
   within the kernel. Writes that the C library buffers itself (fwrite) count as their fopen only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long target;
static int fault; /* an errno; 0: none; -1: SIGKILL; -2: loss of power */
static atomic_long count;
static char name[64];

void torture_arm(const char *below, long number, int kind) {
    strncpy(folder, below, sizeof folder - 1);
    target = number;
    fault = kind;
    count = 0;
}
long torture_count(void) { return count; }
const char *torture_operation(void) { return name; }

static int below(const char *path) {
    size_t length = strlen(folder);
    return length && strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}
/* The files that were opened for writing below the folder, with the size that their last fsync made durable. An
   own descriptor stays valid when the file is renamed, and holds no lock. */
static struct { dev_t device; ino_t inode; off_t durable; int own; } files[4096];
static atomic_int known;
static int entry_of(const struct stat *status) {
    for (int i = 0; i < known; i++)
        if (files[i].device == status->st_dev && files[i].inode == status->st_ino) return i;
    return -1;
}
static void opened(int fd, int truncated) {
    struct stat status;
    char link[64], path[PATH_MAX];
    if (fault != -2 || fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
    if (!below(path)) return;
    int entry = entry_of(&status);
    if (entry < 0 && known < 4096) {
        entry = known++;
        files[entry].device = status.st_dev;
        files[entry].inode = status.st_ino;
        files[entry].durable = status.st_size;
        files[entry].own = syscall(SYS_openat, AT_FDCWD, link, O_WRONLY | O_CLOEXEC, 0);
    }
    if (entry >= 0 && truncated) files[entry].durable = 0;
}
static void synced(int fd) {
    struct stat status;
    int entry = fault == -2 && !fstat(fd, &status) ? entry_of(&status) : -1;
    if (entry >= 0) files[entry].durable = status.st_size;
}
static void lose(void) {
    struct stat status;
    for (int i = 0; i < known; i++)
        if (!fstat(files[i].own, &status) && status.st_size > files[i].durable)
            syscall(SYS_ftruncate, files[i].own, files[i].durable);
}
static int due(const char *operation) {
    if (atomic_fetch_add(&count, 1) + 1 != target) return 0;
    strncpy(name, operation, sizeof name - 1);
    if (fault == -2) lose();
    if (fault < 0) kill(getpid(), SIGKILL);
    if (fault > 0) errno = fault;
    return fault > 0;
}
static int of_fd(const char *operation, int fd) {
    char link[64], path[PATH_MAX];
    if (!*folder || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return below(path) && due(operation);
}
static int of_path(const char *operation, int directory, const char *path) {
    char full[2 * PATH_MAX], link[64];
    if (!*folder || !path) return 0;
    if (*path == '/') return below(path) && due(operation);
    if (directory == AT_FDCWD) {
        if (!getcwd(full, PATH_MAX)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t size = readlink(link, full, PATH_MAX - 1);
        if (size < 0) return 0;
        full[size] = 0;
    }
    strncat(full, "/", sizeof full - strlen(full) - 1);
    strncat(full, path, sizeof full - strlen(full) - 1);
    return below(full) && due(operation);
}

#define REAL(result, function, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, #function)
#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); \
    }

#define OPEN(function) \
    int function(const char *path, int flags, ...) { \
        REAL(int, function, const char *, int, ...); MODE(flags) \
        if (WRITES(flags) && of_path("open", AT_FDCWD, path)) return -1; \
        int fd = real(path, flags, mode); \
        if (WRITES(flags)) opened(fd, flags & O_TRUNC); \
        return fd; \
    }
OPEN(open) OPEN(open64)
#define OPENAT(function) \
    int function(int at, const char *path, int flags, ...) { \
        REAL(int, function, int, const char *, int, ...); MODE(flags) \
        if (WRITES(flags) && of_path("open", at, path)) return -1; \
        int fd = real(at, path, flags, mode); \
        if (WRITES(flags)) opened(fd, flags & O_TRUNC); \
        return fd; \
    }
OPENAT(openat) OPENAT(openat64)
#define FOPEN(function) \
    FILE *function(const char *path, const char *mode) { \
        REAL(FILE *, function, const char *, const char *); \
        if (strpbrk(mode, "wa+") && of_path("open", AT_FDCWD, path)) return NULL; \
        FILE *file = real(path, mode); \
        if (file && strpbrk(mode, "wa+")) opened(fileno(file), *mode == 'w'); \
        return file; \
    }
FOPEN(fopen) FOPEN(fopen64)
#define ON_FD(result, function, operation, parameters, arguments, fd) \
    result function parameters { \
        static result (*real) parameters; \
        if (!real) real = dlsym(RTLD_NEXT, #function); \
        if (of_fd(operation, fd)) return -1; \
        return real arguments; \
    }
ON_FD(ssize_t, write, "write", (int fd, const void *data, size_t size), (fd, data, size), fd)
ON_FD(ssize_t, writev, "write", (int fd, const struct iovec *data, int size), (fd, data, size), fd)
ON_FD(ssize_t, pwrite, "write", (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), fd)
ON_FD(ssize_t, pwrite64, "write", (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), fd)
ON_FD(ssize_t, sendfile, "write", (int fd, int in, off_t *at, size_t size), (fd, in, at, size), fd)
ON_FD(ssize_t, sendfile64, "write", (int fd, int in, off64_t *at, size_t size), (fd, in, at, size), fd)
ON_FD(ssize_t, copy_file_range, "write",
      (int in, off64_t *from, int fd, off64_t *at, size_t size, unsigned flags),
      (in, from, fd, at, size, flags), fd)
#define SYNC(function) \
    int function(int fd) { \
        REAL(int, function, int); \
        if (of_fd("fsync", fd)) return -1; \
        int result = real(fd); \
        if (!result) synced(fd); \
        return result; \
    }
SYNC(fsync) SYNC(fdatasync)
ON_FD(int, ftruncate, "truncate", (int fd, off_t size), (fd, size), fd)
ON_FD(int, ftruncate64, "truncate", (int fd, off64_t size), (fd, size), fd)
#define ON_PATH(function, operation, parameters, arguments, at, path) \
    int function parameters { \
        static int (*real) parameters; \
        if (!real) real = dlsym(RTLD_NEXT, #function); \
        if (of_path(operation, at, path)) return -1; \
        return real arguments; \
    }
ON_PATH(rename, "rename", (const char *old, const char *new), (old, new), AT_FDCWD, new)
ON_PATH(renameat, "rename", (int from, const char *old, int to, const char *new), (from, old, to, new), to, new)
ON_PATH(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
ON_PATH(mkdirat, "mkdir", (int at, const char *path, mode_t mode), (at, path, mode), at, path)
ON_PATH(unlink, "unlink", (const char *path), (path), AT_FDCWD, path)
ON_PATH(unlinkat, "unlink", (int at, const char *path, int flags), (at, path, flags), at, path)
ON_PATH(rmdir, "unlink", (const char *path), (path), AT_FDCWD, path)
ON_PATH(truncate, "truncate", (const char *path, off_t size), (path, size), AT_FDCWD, path)
ON_PATH(link, "link", (const char *old, const char *new), (old, new), AT_FDCWD, new)
ON_PATH(symlink, "link", (const char *old, const char *new), (old, new), AT_FDCWD, new)
#define MMAP(function, offset) \
    void *function(void *at, size_t size, int access, int flags, int fd, offset from) { \
        REAL(void *, function, void *, size_t, int, int, int, offset); \
        if (!(flags & MAP_ANONYMOUS) && of_fd("mmap", fd)) return MAP_FAILED; \
        return real(at, size, access, flags, fd, from); \
    }
MMAP(mmap, off_t) MMAP(mmap64, off64_t)
