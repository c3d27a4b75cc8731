/* What macOS names or counts differently from Linux, and what the page "Will it fit?" lacks in a
 * browser; nothing else in src/ and backends/ asks for __APPLE__ or __wasm__.
 *
 * tests/style/macos.py compiles and links every file for macOS.  Nobody has run the programs there.
 */
#ifndef GPT_TRAIN_BASE_PLATFORM_H
#define GPT_TRAIN_BASE_PLATFORM_H

#ifdef __APPLE__
#define PLATFORM_MTIM st_mtimespec           /* the member of struct stat */
#define PLATFORM_MAXRSS_BYTES 1              /* the unit of ru_maxrss */
#define PLATFORM_TICKER_CLOCK CLOCK_REALTIME /* the only clock that condition variables wait by */
#define PLATFORM_TICKER_CLOCK_SET(attributes) ((void)(attributes))
#define PLATFORM_OPENCL "/System/Library/Frameworks/OpenCL.framework/OpenCL"
#define PLATFORM_CLBLAST "libclblast.dylib"
#else
#define PLATFORM_MTIM st_mtim
#define PLATFORM_MAXRSS_BYTES 1024
#define PLATFORM_TICKER_CLOCK CLOCK_MONOTONIC
#define PLATFORM_TICKER_CLOCK_SET(attributes) \
    ((void)pthread_condattr_setclock(attributes, CLOCK_MONOTONIC))
#define PLATFORM_OPENCL "libOpenCL.so.1"
#define PLATFORM_CLBLAST "libclblast.so.1"
#endif

#ifdef __wasm__
#define PLATFORM_IS_TERMINAL(fd) false
#else
#define PLATFORM_IS_TERMINAL(fd) (isatty(fd) == 1)
#endif

#endif
