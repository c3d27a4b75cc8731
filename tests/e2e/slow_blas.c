/* To be preloaded: cblas_sgemm as in a library without kernels, as loops over elements, for the
 * calls that gpt-train makes (row major).  It is compiled without optimization, to be as slow as
 * those libraries.
 */
enum { ROW_MAJOR = 101, TRANSPOSED = 112 };

void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float *a, int a_row, const float *b, int b_row, float beta, float *c,
                 int c_row);

void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float *a, int a_row, const float *b, int b_row, float beta, float *c,
                 int c_row)
{
    if (order != ROW_MAJOR)
        return;
    for (long i = 0; i < m; i++) {
        for (long j = 0; j < n; j++) {
            float sum = 0;
            for (long l = 0; l < k; l++)
                sum += (transpose_a == TRANSPOSED ? a[l * a_row + i] : a[i * a_row + l]) *
                       (transpose_b == TRANSPOSED ? b[j * b_row + l] : b[l * b_row + j]);
            c[i * c_row + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * c_row + j]);
        }
    }
}
