/* Checks the oracle against central differences and known answers (tests/ops/selftest.h).  --seed=N draws other
 * values. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ops/selftest.h"

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 && strncmp(argv[1], "--seed=", 7) == 0 ? strtoull(argv[1] + 7, NULL, 0) : 1337;
    printf("ref_selftest: seed %" PRIu64 "\n", seed);
    return selftest_run(seed) > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
