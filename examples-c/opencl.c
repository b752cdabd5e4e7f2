/* OpenCL: a kernel adds two slices into a third, all of one buffer. The inputs are written through a slice of memory
 * that the host maps, and every sum is read back and looked at.
 *
 * OpenCL is opened when the program runs, so that it compiles, and says SKIPPED, where there is none. A program that is
 * linked with it calls its functions as always, and fills the adapter's table with SLICEPOOL_OPENCL_LINKED().
 */
#define CL_TARGET_OPENCL_VERSION 120
#include "slicepool_opencl.h"

#include <CL/cl_icd.h> /* types of the functions */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 100000u
#define SIZE (COUNT * sizeof(cl_uint))

#define FUNCTIONS(X)                                                                                          \
  X(clGetPlatformIDs) X(clGetDeviceIDs) X(clCreateContext) X(clReleaseContext) X(clCreateCommandQueue)         \
  X(clReleaseCommandQueue) X(clCreateProgramWithSource) X(clReleaseProgram) X(clBuildProgram) X(clCreateKernel) \
  X(clReleaseKernel) X(clSetKernelArg) X(clEnqueueNDRangeKernel) X(clEnqueueCopyBuffer) X(clEnqueueReadBuffer)  \
  X(clReleaseMemObject)
#define DECLARE(name) cl_api_##name name;
#define FIND(name) if (!slicepool_opencl_find(symbol, library, #name, &cl.name)) return 0;

static struct { FUNCTIONS(DECLARE) } cl;

static const char *const source =
    "kernel void add(global const uint *a, global const uint *b, global uint *sum) {\n"
    "  size_t i = get_global_id(0);\n"
    "  sum[i] = a[i] + b[i];\n"
    "}\n";

static void *symbol(void *library, const char *name) { return dlsym(library, name); }

/* Opens OpenCL; 0 if it is not there, or has no device. */
static int open_opencl(slicepool_opencl_functions *functions, cl_device_id *device) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
  cl_platform_id platform;
  if (library == NULL || slicepool_opencl_load(functions, symbol, library) != SLICEPOOL_OK) return 0;
  FUNCTIONS(FIND)
  return cl.clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS &&
         cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, device, NULL) == CL_SUCCESS;
}

static void check(int32_t result, const char *what) {
  if (result != 0) {
    fprintf(stderr, "%s: %d\n", what, (int)result);
    exit(1);
  }
}

static slicepool_slice allocate(const slicepool_opencl *opencl, slicepool_allocator *allocator, uint32_t properties) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_opencl_request(opencl, SIZE, properties, &request);
  request.failure = &failure;
  if (slicepool_allocate(allocator, &request, &slice) != SLICEPOOL_OK) {
    fprintf(stderr, "allocate: %s, code %d\n", slicepool_result_string(failure.result), (int)failure.device_code);
    exit(1);
  }
  return slice;
}

/* Writes numbers through the host's memory to a slice of the device's. */
static void upload(slicepool_allocator *allocator, cl_command_queue queue, const slicepool_slice *staging,
                   const slicepool_slice *to, cl_uint factor) {
  void *mapped = NULL;
  check(slicepool_map(allocator, staging->id, &mapped, NULL), "map");
  for (cl_uint i = 0; i < COUNT; i++) ((cl_uint *)mapped)[i] = i * factor;
  /* The device must not use a page that is mapped. */
  check(slicepool_unmap(allocator, staging->id), "unmap");
  check(cl.clEnqueueCopyBuffer(queue, slicepool_opencl_buffer(staging), slicepool_opencl_buffer(to), staging->offset,
                               to->offset, SIZE, 0, NULL, NULL), "clEnqueueCopyBuffer");
}

int main(void) {
  static slicepool_opencl opencl; /* zero; must stay where it is */
  static cl_uint sums[COUNT];
  slicepool_opencl_functions functions;
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_allocator *allocator = NULL;
  cl_device_id id;
  cl_int code;
  if (!open_opencl(&functions, &id)) {
    puts("SKIPPED: no OpenCL device");
    return 0;
  }
  cl_context context = cl.clCreateContext(NULL, 1, &id, NULL, NULL, &code);
  check(code, "clCreateContext");
  cl_command_queue queue = cl.clCreateCommandQueue(context, id, 0, &code);
  check(code, "clCreateCommandQueue");

  /* The adapter, and an allocator over it. */
  check(slicepool_opencl_init(&opencl, &functions, context, id, queue), "slicepool_opencl_init");
  slicepool_opencl_device(&opencl, &device);
  slicepool_opencl_describe(&opencl, &config);
  check(slicepool_allocator_create(&device, &config, &allocator), "slicepool_allocator_create");

  /* Two inputs and an output: slices of one buffer, each with a sub-buffer for the kernel. */
  slicepool_slice staging = allocate(&opencl, allocator, SLICEPOOL_OPENCL_HOST);
  slicepool_slice slices[3];
  cl_mem buffers[3];
  for (int i = 0; i < 3; i++) {
    slices[i] = allocate(&opencl, allocator, SLICEPOOL_OPENCL_DEVICE);
    check(slicepool_opencl_sub_buffer(&opencl, &slices[i], 0, &buffers[i], NULL), "slicepool_opencl_sub_buffer");
    printf("slice %d: %llu bytes at %llu\n", i, (unsigned long long)slices[i].size,
           (unsigned long long)slices[i].offset);
  }
  const int is_one = slices[0].memory == slices[1].memory && slices[1].memory == slices[2].memory;
  printf("buffers: %s\n", is_one ? "1" : "several");

  upload(allocator, queue, &staging, &slices[0], 3);
  upload(allocator, queue, &staging, &slices[1], 4); /* mapping waits for the copy before */

  cl_program program = cl.clCreateProgramWithSource(context, 1, (const char **)&source, NULL, &code);
  check(code, "clCreateProgramWithSource");
  check(cl.clBuildProgram(program, 1, &id, "", NULL, NULL), "clBuildProgram");
  cl_kernel kernel = cl.clCreateKernel(program, "add", &code);
  check(code, "clCreateKernel");
  for (cl_uint i = 0; i < 3; i++) check(cl.clSetKernelArg(kernel, i, sizeof buffers[i], &buffers[i]), "clSetKernelArg");
  const size_t count = COUNT;
  check(cl.clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");

  /* Copies take the root buffer and the slice's offset. This one waits for the kernel. */
  check(cl.clEnqueueReadBuffer(queue, slicepool_opencl_buffer(&slices[2]), CL_TRUE, slices[2].offset, SIZE, sums, 0,
                               NULL, NULL), "clEnqueueReadBuffer");
  unsigned wrong = 0;
  for (cl_uint i = 0; i < COUNT; i++) wrong += sums[i] != i * 7;
  printf("sums: %u of %u right\n", COUNT - wrong, COUNT);

  for (int i = 0; i < 3; i++) {
    check(cl.clReleaseMemObject(buffers[i]), "clReleaseMemObject"); /* the sub-buffer first, then its slice */
    check(slicepool_free(allocator, slices[i].id), "slicepool_free");
  }
  check(slicepool_free(allocator, staging.id), "slicepool_free");
  check(slicepool_allocator_destroy(allocator, 0, NULL), "slicepool_allocator_destroy");
  cl.clReleaseKernel(kernel);
  cl.clReleaseProgram(program);
  cl.clReleaseCommandQueue(queue);
  cl.clReleaseContext(context);
  return wrong == 0 && is_one ? 0 : 1;
}
