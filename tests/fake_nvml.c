/* A stand-in for the NVIDIA driver's management library, for machines that have none.
 *
 *     gcc -shared -fPIC -o libnvidia-ml.so.1 fake_nvml.c
 *     LD_LIBRARY_PATH=. python pipelines/doctor.py
 *
 * Environment variables choose what it shows (defaults in parentheses):
 *     FAKE_NVML_GPUS         number of GPUs (1)
 *     FAKE_NVML_CAPABILITY   their compute capability (8.0)
 *     FAKE_NVML_CUDA         newest CUDA that the driver runs, 1000 * major + 10 * minor (12040)
 *     FAKE_NVML_UNSUPPORTED  questions it does not support, out of: name utilisation memory temperature power
 *     FAKE_NVML_INIT         the status that opening the library returns (0; 18: driver and library versions differ)
 *
 * GPU i uses 10 + i of 80 GiB, is 37 % busy, has 50 + i degrees C and draws 250 + i W.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilisation;

static int number(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    return text && *text ? atoi(text) : otherwise;
}

static int unsupported(const char *question) {
    const char *text = getenv("FAKE_NVML_UNSUPPORTED");
    return text && strstr(text, question) != NULL;
}

/* A handle is the address of the GPU's slot in an array of which only the addresses matter. */
static char slots[64];

static int index_of(const void *handle) { return (int)((const char *)handle - slots); }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return number("FAKE_NVML_INIT", SUCCESS);
}

int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "550.54.15");
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = number("FAKE_NVML_CUDA", 12040);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)number("FAKE_NVML_GPUS", 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (index >= (unsigned)number("FAKE_NVML_GPUS", 1) || index >= sizeof slots) return INVALID_ARGUMENT;
    *handle = slots + index;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    unsigned index;
    if (sscanf(uuid, "GPU-%8x-0000-0000-0000-000000000000", &index) != 1) return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(index, handle) == SUCCESS ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
    if (unsupported("name")) return NOT_SUPPORTED;
    snprintf(name, length, "Imaginary GPU %d", index_of(handle));
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    const char *text = getenv("FAKE_NVML_CAPABILITY");
    (void)handle;
    return sscanf(text && *text ? text : "8.0", "%d.%d", major, minor) == 2 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    if (unsupported("memory")) return NOT_SUPPORTED;
    memory->total = 80ull << 30;
    memory->used = (10ull + (unsigned long long)index_of(handle)) << 30;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, Utilisation *utilisation) {
    (void)handle;
    if (unsupported("utilisation")) return NOT_SUPPORTED;
    utilisation->gpu = 37;
    utilisation->memory = 12;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    (void)sensor;
    if (unsupported("temperature")) return NOT_SUPPORTED;
    *celsius = 50u + (unsigned)index_of(handle);
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    if (unsupported("power")) return NOT_SUPPORTED;
    *milliwatts = 1000u * (250u + (unsigned)index_of(handle));
    return SUCCESS;
}
