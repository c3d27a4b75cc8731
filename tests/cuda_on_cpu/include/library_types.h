/* A stand-in for CUDA's library_types.h: the dtypes of matrices. */
#ifndef GPT_TRAIN_CUDA_ON_CPU_INCLUDE_LIBRARY_TYPES_H
#define GPT_TRAIN_CUDA_ON_CPU_INCLUDE_LIBRARY_TYPES_H

typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType_t;
typedef cudaDataType_t cudaDataType;

#endif
