/* Stands between a process and the kernel for files below one folder: makes calls fail, or records them.
 *
 * LD_PRELOAD it. It sleeps until the environment has
 *   SHIM_UNDER   the folder, absolute, without links
 *   SHIM_STATE   a file of SHIM_STATE_BYTES zeros that all processes of a run share
 * and, if some call is to fail,
 *   SHIM_FAIL    "N ERRNO LASTS": the N-th call of the run, from 1; LASTS 1: and each that comes after it
 * or, if calls are to be recorded,
 *   SHIM_LOG     a file; a line for each call, see `record`, with the written bytes behind it
 * SHIM_ONLY    "CALL TEXT" counts, and lets fail, such calls alone with TEXT in their path.
 * SHIM_RANK counts, and lets fail, the calls of that Open MPI rank alone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NOTE_BYTES 3800

struct state { /* at the head of SHIM_STATE, see support/shim.py */
    unsigned long calls, failed;
    char note[NOTE_BYTES]; /* the first call that failed: its name, a space, its path */
    pthread_mutex_t turn;  /* of those who record */
    unsigned long ready;
};

static struct state *state;
static const char *under, *only_rank, *only_text;
static char only_call[32];
static size_t under_length;
static unsigned long fail_at;
static int fail_with, lasts, log_file = -1;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static int awake(void) {
    if (state)
        return 1;
    const char *path = getenv("SHIM_STATE"), *folder = getenv("SHIM_UNDER");
    if (!path || !folder)
        return 0;
    pthread_mutex_lock(&opening);
    if (!state) {
        const char *fail = getenv("SHIM_FAIL"), *log = getenv("SHIM_LOG");
        under = strdup(folder);
        under_length = strlen(under);
        only_rank = getenv("SHIM_RANK") ? strdup(getenv("SHIM_RANK")) : NULL;
        const char *only = getenv("SHIM_ONLY");
        if (only && sscanf(only, "%31s", only_call) == 1)
            only_text = strdup(only + strlen(only_call) + 1);
        if (fail)
            sscanf(fail, "%lu %d %d", &fail_at, &fail_with, &lasts);
        int file = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
        struct state *mapped = (void *)syscall(
            SYS_mmap, NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        syscall(SYS_close, file);
        if (log) {
            log_file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
            if (__sync_bool_compare_and_swap(&mapped->ready, 0, 1)) {
                pthread_mutexattr_t shared;
                pthread_mutexattr_init(&shared);
                pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
                pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
                pthread_mutex_init(&mapped->turn, &shared);
                __atomic_store_n(&mapped->ready, 2, __ATOMIC_RELEASE);
            }
            while (__atomic_load_n(&mapped->ready, __ATOMIC_ACQUIRE) != 2)
                usleep(100);
        }
        __atomic_store_n(&state, mapped, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&opening);
    return 1;
}

static int is_below(const char *path) {
    return strncmp(path, under, under_length) == 0 && (path[under_length] == 0 || path[under_length] == '/');
}

/* The path behind a descriptor, or of a name in a folder; 0 if it does not lie below. */
static int path_of(int folder, const char *name, char *path) {
    char own[64];
    if (name && name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return is_below(path);
    }
    ssize_t length;
    if (folder == AT_FDCWD) {
        if (!getcwd(path, PATH_MAX))
            return 0;
        length = strlen(path);
    } else {
        snprintf(own, sizeof own, "/proc/self/fd/%d", folder);
        length = readlink(own, path, PATH_MAX - 1);
        if (length < 0)
            return 0;
        path[length] = 0;
    }
    if (name)
        snprintf(path + length, PATH_MAX - length, "/%s", name);
    return is_below(path);
}

/* Count a call; whether it fails, with errno set. */
static int fails(const char *call, const char *path) {
    if (log_file >= 0)
        return 0;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (only_rank && (!rank || strcmp(rank, only_rank) != 0))
        return 0;
    if (only_text && (strcmp(call, only_call) != 0 || !strstr(path, only_text)))
        return 0;
    unsigned long number = __sync_add_and_fetch(&state->calls, 1);
    if (!fail_at || number < fail_at || (number > fail_at && !lasts))
        return 0;
    if (__sync_add_and_fetch(&state->failed, 1) == 1)
        snprintf(state->note, NOTE_BYTES, "%s %s", call, path);
    errno = fail_with;
    return 1;
}

static void take_turn(void) {
    if (log_file >= 0 && pthread_mutex_lock(&state->turn) == EOWNERDEAD)
        pthread_mutex_consistent(&state->turn);
}

static void end_turn(void) {
    if (log_file >= 0)
        pthread_mutex_unlock(&state->turn);
}

/* CALL INODE OFFSET LENGTH PATH-LENGTH OTHER-LENGTH, a newline, the path, the other path, LENGTH bytes. */
static void record(
    const char *call, unsigned long inode, long offset, const char *path, const char *other, const void *bytes,
    size_t length) {
    if (log_file < 0)
        return;
    char head[256];
    __sync_add_and_fetch(&state->calls, 1);
    int size = snprintf(
        head, sizeof head, "%s %lu %ld %zu %zu %zu\n", call, inode, offset, length, strlen(path), strlen(other));
    struct iovec parts[] = {
        {head, size}, {(void *)path, strlen(path)}, {(void *)other, strlen(other)}, {(void *)bytes, length}};
    syscall(SYS_writev, log_file, parts, 4);
}

static unsigned long inode_of(const char *path) {
    struct stat found;
    return lstat(path, &found) == 0 ? found.st_ino : 0;
}

static unsigned long inode_behind(int file) {
    struct stat found;
    return fstat(file, &found) == 0 ? found.st_ino : 0;
}

static int opens(const char *call, int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (!awake() || !path_of(folder, name, path))
        return syscall(SYS_openat, folder, name, flags, mode);
    if (fails(call, path))
        return -1;
    take_turn();
    unsigned long before = inode_of(path);
    int file = syscall(SYS_openat, folder, name, flags, mode);
    int kept = errno;
    if (file >= 0) {
        if (!before && (flags & O_CREAT))
            record("create", inode_behind(file), 0, path, "", NULL, 0);
        else if (flags & O_TRUNC)
            record("truncate", inode_behind(file), 0, path, "", NULL, 0);
        else
            record("open", inode_behind(file), 0, path, "", NULL, 0);
    }
    end_turn();
    errno = kept;
    return file;
}

#define MODE_OF(flags)                                                                                               \
    mode_t mode = 0;                                                                                                 \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                                         \
        va_list more;                                                                                                \
        va_start(more, flags);                                                                                       \
        mode = va_arg(more, mode_t);                                                                                 \
        va_end(more);                                                                                                \
    }

int open(const char *name, int flags, ...) {
    MODE_OF(flags)
    return opens("open", AT_FDCWD, name, flags, mode);
}

int open64(const char *name, int flags, ...) {
    MODE_OF(flags)
    return opens("open", AT_FDCWD, name, flags, mode);
}

int openat(int folder, const char *name, int flags, ...) {
    MODE_OF(flags)
    return opens("openat", folder, name, flags, mode);
}

int openat64(int folder, const char *name, int flags, ...) {
    MODE_OF(flags)
    return opens("openat", folder, name, flags, mode);
}

int __open_2(const char *name, int flags) {
    return opens("open", AT_FDCWD, name, flags, 0);
}

int __open64_2(const char *name, int flags) {
    return opens("open", AT_FDCWD, name, flags, 0);
}

int __openat_2(int folder, const char *name, int flags) {
    return opens("openat", folder, name, flags, 0);
}

int __openat64_2(int folder, const char *name, int flags) {
    return opens("openat", folder, name, flags, 0);
}

int creat(const char *name, mode_t mode) {
    return opens("creat", AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int creat64(const char *name, mode_t mode) {
    return opens("creat", AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

/* Where the next write goes. */
static off_t place_of(int file) {
    struct stat found;
    if ((fcntl(file, F_GETFL) & O_APPEND) && fstat(file, &found) == 0)
        return found.st_size;
    return lseek(file, 0, SEEK_CUR);
}

ssize_t write(int file, const void *bytes, size_t length) {
    char path[PATH_MAX];
    if (!awake() || !path_of(file, NULL, path))
        return syscall(SYS_write, file, bytes, length);
    if (fails("write", path))
        return -1;
    take_turn();
    off_t place = log_file >= 0 ? place_of(file) : 0;
    ssize_t written = syscall(SYS_write, file, bytes, length);
    int kept = errno;
    if (written > 0)
        record("write", inode_behind(file), place, path, "", bytes, written);
    end_turn();
    errno = kept;
    return written;
}

static ssize_t writes_at(int file, const void *bytes, size_t length, off_t place) {
    char path[PATH_MAX];
    if (!awake() || !path_of(file, NULL, path))
        return syscall(SYS_pwrite64, file, bytes, length, place);
    if (fails("pwrite", path))
        return -1;
    take_turn();
    ssize_t written = syscall(SYS_pwrite64, file, bytes, length, place);
    int kept = errno;
    if (written > 0)
        record("write", inode_behind(file), place, path, "", bytes, written);
    end_turn();
    errno = kept;
    return written;
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t place) {
    return writes_at(file, bytes, length, place);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t place) {
    return writes_at(file, bytes, length, place);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    char path[PATH_MAX];
    if (!awake() || !path_of(file, NULL, path))
        return syscall(SYS_writev, file, parts, count);
    if (fails("writev", path))
        return -1;
    ssize_t all = 0;
    for (int part = 0; part < count; part++) { /* one by one: each is recorded with its place */
        take_turn();
        off_t place = log_file >= 0 ? place_of(file) : 0;
        ssize_t written = syscall(SYS_write, file, parts[part].iov_base, parts[part].iov_len);
        if (written > 0)
            record("write", inode_behind(file), place, path, "", parts[part].iov_base, written);
        end_turn();
        if (written < 0)
            return all ? all : written;
        all += written;
    }
    return all;
}

/* Recorded as writes of what was copied. */
ssize_t copy_file_range(int from, off64_t *at, int file, off64_t *place, size_t length, unsigned flags) {
    char path[PATH_MAX];
    if (!awake() || !path_of(file, NULL, path))
        return syscall(SYS_copy_file_range, from, at, file, place, length, flags);
    if (fails("copy_file_range", path))
        return -1;
    take_turn();
    off_t begin = place ? *place : lseek(file, 0, SEEK_CUR), done = 0;
    ssize_t copied = syscall(SYS_copy_file_range, from, at, file, place, length, flags);
    int kept = errno;
    char bytes[65536];
    while (log_file >= 0 && done < copied) {
        size_t piece = copied - done < (off_t)sizeof bytes ? (size_t)(copied - done) : sizeof bytes;
        ssize_t read = syscall(SYS_pread64, file, bytes, piece, begin + done);
        if (read <= 0)
            break;
        record("write", inode_behind(file), begin + done, path, "", bytes, read);
        done += read;
    }
    end_turn();
    errno = kept;
    return copied;
}

static int syncs(const char *call, long number, int file) {
    char path[PATH_MAX];
    if (!awake() || !path_of(file, NULL, path))
        return syscall(number, file);
    if (fails(call, path))
        return -1;
    take_turn();
    int result = syscall(number, file);
    int kept = errno;
    if (result == 0)
        record("sync", inode_behind(file), 0, path, "", NULL, 0);
    end_turn();
    errno = kept;
    return result;
}

int fsync(int file) {
    return syncs("fsync", SYS_fsync, file);
}

int fdatasync(int file) {
    return syncs("fdatasync", SYS_fdatasync, file);
}

static int renames(const char *call, int from, const char *old, int to, const char *new, unsigned flags) {
    char path[PATH_MAX], other[PATH_MAX];
    if (!awake() || !(path_of(from, old, path) | path_of(to, new, other)))
        return syscall(SYS_renameat2, from, old, to, new, flags);
    if (fails(call, other))
        return -1;
    take_turn();
    unsigned long inode = inode_of(path);
    int result = syscall(SYS_renameat2, from, old, to, new, flags);
    int kept = errno;
    if (result == 0)
        record("rename", inode, 0, path, other, NULL, 0);
    end_turn();
    errno = kept;
    return result;
}

int rename(const char *old, const char *new) {
    return renames("rename", AT_FDCWD, old, AT_FDCWD, new, 0);
}

int renameat(int from, const char *old, int to, const char *new) {
    return renames("renameat", from, old, to, new, 0);
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return renames("renameat2", from, old, to, new, flags);
}

static int removes(const char *call, int folder, const char *name, int flags) {
    char path[PATH_MAX];
    if (!awake() || !path_of(folder, name, path))
        return syscall(SYS_unlinkat, folder, name, flags);
    if (fails(call, path))
        return -1;
    take_turn();
    unsigned long inode = inode_of(path);
    int result = syscall(SYS_unlinkat, folder, name, flags);
    int kept = errno;
    if (result == 0)
        record("unlink", inode, 0, path, "", NULL, 0);
    end_turn();
    errno = kept;
    return result;
}

int unlink(const char *name) {
    return removes("unlink", AT_FDCWD, name, 0);
}

int unlinkat(int folder, const char *name, int flags) {
    return removes("unlinkat", folder, name, flags);
}

int rmdir(const char *name) {
    return removes("rmdir", AT_FDCWD, name, AT_REMOVEDIR);
}

static int makes_folder(const char *call, int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!awake() || !path_of(folder, name, path))
        return syscall(SYS_mkdirat, folder, name, mode);
    if (fails(call, path))
        return -1;
    take_turn();
    int result = syscall(SYS_mkdirat, folder, name, mode);
    int kept = errno;
    if (result == 0)
        record("mkdir", inode_of(path), 0, path, "", NULL, 0);
    end_turn();
    errno = kept;
    return result;
}

int mkdir(const char *name, mode_t mode) {
    return makes_folder("mkdir", AT_FDCWD, name, mode);
}

int mkdirat(int folder, const char *name, mode_t mode) {
    return makes_folder("mkdirat", folder, name, mode);
}

int flock(int file, int what) {
    char path[PATH_MAX];
    if (awake() && path_of(file, NULL, path) && fails("flock", path))
        return -1;
    return syscall(SYS_flock, file, what);
}

static void *maps(void *where, size_t length, int may, int how, int file, off_t place) {
    char path[PATH_MAX];
    if (file >= 0 && awake() && path_of(file, NULL, path) && fails("mmap", path))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, where, length, may, how, file, place);
}

void *mmap(void *where, size_t length, int may, int how, int file, off_t place) {
    return maps(where, length, may, how, file, place);
}

void *mmap64(void *where, size_t length, int may, int how, int file, off64_t place) {
    return maps(where, length, may, how, file, place);
}

static int cuts(int file, off_t length) {
    char path[PATH_MAX];
    if (!awake() || !path_of(file, NULL, path))
        return syscall(SYS_ftruncate, file, length);
    if (fails("ftruncate", path))
        return -1;
    take_turn();
    int result = syscall(SYS_ftruncate, file, length);
    int kept = errno;
    if (result == 0)
        record("truncate", inode_behind(file), length, path, "", NULL, 0);
    end_turn();
    errno = kept;
    return result;
}

int ftruncate(int file, off_t length) {
    return cuts(file, length);
}

int ftruncate64(int file, off64_t length) {
    return cuts(file, length);
}
