# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""A thread without the interpreter that waits for fsyncs of local files, one at a time.

The hop to a thread of a pool and back takes the interpreter's lock several times, and costs more processor time than the fsync of
a turn. This thread never takes it: it reads a descriptor, calls ``fdatasync`` and says the outcome, all by eventfds.
It has no plain twin: ``JournalFiles.sync`` in a thread of a pool does the same, for files of every kind.
"""

from libc.string cimport strerror

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <sys/eventfd.h>
    #include <time.h>
    #include <unistd.h>

    typedef struct {
        int asked, done;  /* eventfds */
        int descriptor;   /* to sync; -1 ends the thread */
        int error;        /* of the last fsync, or 0 */
        double seconds;   /* that it took */
        pthread_t thread;
    } SyncState;

    static double sync_now(void) {
        struct timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    }

    static void *sync_run(void *given) {
        SyncState *state = given;
        uint64_t count;
        for (;;) {
            if (read(state->asked, &count, sizeof(count)) != sizeof(count)) {
                if (errno == EINTR) continue;
                return NULL;
            }
            if (state->descriptor < 0) return NULL;
            double began = sync_now();
            state->error = fdatasync(state->descriptor) == 0 ? 0 : errno;
            state->seconds = sync_now() - began;
            count = 1;
            if (write(state->done, &count, sizeof(count)) != sizeof(count)) return NULL;
        }
    }

    static int sync_start(SyncState *state) {
        /* Signals are for the threads of the interpreter. */
        sigset_t all, before;
        int error;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(&state->thread, NULL, sync_run, state);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return error;
    }

    static int sync_ask(SyncState *state, int descriptor) {
        uint64_t count = 1;
        state->descriptor = descriptor;
        return write(state->asked, &count, sizeof(count)) == sizeof(count) ? 0 : errno;
    }

    static int sync_take(SyncState *state) {
        uint64_t count;
        return read(state->done, &count, sizeof(count)) == sizeof(count);
    }
    """
    ctypedef unsigned long pthread_t

    ctypedef struct SyncState:
        int asked
        int done
        int error
        double seconds
        pthread_t thread

    int sync_start(SyncState* state)
    int sync_ask(SyncState* state, int descriptor)
    int sync_take(SyncState* state)
    int eventfd(unsigned int count, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK
    int close(int descriptor)
    int pthread_join(pthread_t thread, void** result) nogil
    int errno


cdef object error_of(int number):
    return OSError(number, strerror(number).decode("utf-8", "replace"))


cdef class SyncThread:
    """The thread. ``done_descriptor`` becomes readable when a sync has ended. ``close`` ends it; no sync may be under way.

    Thread: the one that made it.

    Raises:
        OSError: the system has no descriptors or threads left.
    """

    cdef SyncState state
    cdef bint is_running

    def __cinit__(self):
        cdef int error
        self.state.asked = self.state.done = -1
        self.state.asked, self.state.done = eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.state.asked < 0 or self.state.done < 0:
            raise error_of(errno)
        error = sync_start(&self.state)
        if error:
            raise error_of(error)
        self.is_running = True

    @property
    def done_descriptor(self):
        return self.state.done

    def begin(self, int descriptor):
        """Sync the file of a descriptor, which must stay open until the end."""
        cdef int error = sync_ask(&self.state, descriptor)
        if error:
            raise error_of(error)

    def take(self):
        """Return the error of the sync that has ended, or ``None``, and the seconds that it took; ``None`` before its end."""
        if not sync_take(&self.state):
            return None
        return (error_of(self.state.error) if self.state.error else None), self.state.seconds

    def close(self):
        """End the thread. A second call does nothing."""
        if self.is_running:
            self.is_running = False
            sync_ask(&self.state, -1)
            with nogil:
                pthread_join(self.state.thread, NULL)
        for descriptor in (self.state.asked, self.state.done):
            if descriptor >= 0:
                close(descriptor)
        self.state.asked = self.state.done = -1

    def __dealloc__(self):
        self.close()
