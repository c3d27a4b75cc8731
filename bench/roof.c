/* The machine's roof for `bench/run`: multiply-adds per second in fp32, and bytes per second from
 * memory.
 *
 * usage: roof [THREADS [SECONDS]]
 *
 * Prints one line of JSON: {"threads": N, "gflops": G, "gbytes": B, "quiet": Q}.  The rates are the
 * best of many short pieces within the time, all threads at once; Q is the mean rate of
 * multiply-adds over the best, near 1 on an otherwise idle machine.  The loops are compiled for
 * several instruction sets and the program runs the widest that the processor supports, so that the
 * figure does not depend on the compiler's flags.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_MAX 256
#define ROUNDS 20000
/* Per thread and array: 16 MiB, so that two threads leave most caches. */
#define STREAM_FLOATS ((size_t)4 << 20)

typedef long burn_function(float *out);

/* CHAINS vectors of independent sums: enough to hide the latency of two units.  Returns the
 * operations done. */
#define BURN(name, attributes, bytes, chains)                                    \
    attributes static long name(float *out)                                      \
    {                                                                            \
        typedef float vector __attribute__((vector_size(bytes)));                \
        vector sum[chains], factor = {0}, step = {0};                            \
        factor = factor + 0.999999f;                                             \
        step = step + 1e-6f;                                                     \
        for (int k = 0; k < (chains); k++)                                       \
            sum[k] = step * (float)k;                                            \
        for (long i = 0; i < ROUNDS; i++) {                                      \
            _Pragma("GCC unroll 16") for (int k = 0; k < (chains); k++) sum[k] = \
                sum[k] * factor + step;                                          \
        }                                                                        \
        for (int k = 1; k < (chains); k++)                                       \
            sum[0] += sum[k];                                                    \
        *out += sum[0][0];                                                       \
        return 2L * (chains) * ((bytes) / 4) * ROUNDS;                           \
    }

BURN(burn_plain, , 16, 8)
#ifdef __x86_64__
BURN(burn_avx2, __attribute__((target("avx2,fma"))), 32, 12)
BURN(burn_avx512, __attribute__((target("avx512f"))), 64, 16)
#endif

static burn_function *burn_choose(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return burn_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return burn_avx2;
#endif
    return burn_plain;
}

struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    burn_function *burn;
    double seconds;
    double flops, bytes; /* per second, best piece */
    double mean;         /* of flops */
};

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* y += 0.5 x over arrays larger than any cache: three transfers of four bytes per element. */
static double stream_piece(const float *x, float *y)
{
    const double start = now_s();
    for (size_t i = 0; i < STREAM_FLOATS; i++)
        y[i] += 0.5f * x[i];
    return 3.0 * sizeof(float) * (double)STREAM_FLOATS / (now_s() - start);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    float *x = calloc(2 * STREAM_FLOATS, sizeof *x), keep = 0.0f;
    if (x == NULL) {
        fprintf(stderr, "roof: out of memory\n");
        exit(1);
    }
    for (size_t i = 0; i < 2 * STREAM_FLOATS; i++)
        x[i] = (float)(i % 7);
    pthread_barrier_wait(worker->barrier);
    const double begin = now_s();
    double done = 0.0;
    for (double end = begin + 0.5 * worker->seconds; now_s() < end;) {
        const double start = now_s(), piece = (double)worker->burn(&keep),
                     rate = piece / (now_s() - start);
        worker->flops = rate > worker->flops ? rate : worker->flops;
        done += piece;
    }
    worker->mean = done / (now_s() - begin);
    pthread_barrier_wait(worker->barrier);
    for (double end = now_s() + 0.5 * worker->seconds; now_s() < end;) {
        const double rate = stream_piece(x, x + STREAM_FLOATS);
        worker->bytes = rate > worker->bytes ? rate : worker->bytes;
    }
    x[0] += keep; /* keeps the compiler from removing the loops */
    free(x);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    pthread_barrier_t barrier;
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const double seconds = argc > 2 ? atof(argv[2]) : 0.4;
    double flops = 0.0, bytes = 0.0, mean = 0.0;
    if (threads < 1 || threads > THREADS_MAX || !(seconds > 0.0) || argc > 3) {
        fprintf(stderr, "usage: roof [THREADS [SECONDS]], 1 to %d threads\n", THREADS_MAX);
        return 2;
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        workers[i] =
            (struct worker){.barrier = &barrier, .burn = burn_choose(), .seconds = seconds};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            fprintf(stderr, "roof: no thread %d\n", i);
            return 1;
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        flops += workers[i].flops;
        bytes += workers[i].bytes;
        mean += workers[i].mean;
    }
    printf("{\"threads\": %d, \"gflops\": %.1f, \"gbytes\": %.1f, \"quiet\": %.3f}\n", threads,
           1e-9 * flops, 1e-9 * bytes, mean / flops);
    return 0;
}
