/* Lists the kernels that a program launches, for tests/gpu/sanitize.py --launches. CUDA's driver loads it into a
 * program in whose environment CUDA_INJECTION64_PATH names it; the name of each kernel is added to the file
 * $MRIRECON_LAUNCHES, one a line, when it is first launched. Without CUPTI the file stays as it is. */
#include <cupti.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <set>
#include <string>

static void CUPTIAPI called(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *data)
{
    static std::mutex mutex;
    static std::set<std::string> seen;
    const CUpti_CallbackData *call = (const CUpti_CallbackData *)data;
    const char *path = getenv("MRIRECON_LAUNCHES");
    if (!path || call->callbackSite != CUPTI_API_ENTER || !call->symbolName ||
        strncmp(call->functionName, "cuLaunchKernel", strlen("cuLaunchKernel")) != 0)
        return;
    const std::lock_guard<std::mutex> lock(mutex);
    FILE *file = seen.insert(call->symbolName).second ? fopen(path, "ae") : NULL;
    if (file) {
        fprintf(file, "%s\n", call->symbolName);
        fclose(file);
    }
}

extern "C" int InitializeInjection(void)
{
    void *cupti = NULL;
    for (const char *name : {"libcupti.so", "libcupti.so.13", "libcupti.so.12",
                             "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so"})
        if (!cupti)
            cupti = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    const auto subscribe = cupti ? (decltype(&cuptiSubscribe))dlsym(cupti, "cuptiSubscribe") : NULL;
    const auto enable = cupti ? (decltype(&cuptiEnableDomain))dlsym(cupti, "cuptiEnableDomain") : NULL;
    CUpti_SubscriberHandle subscriber;
    if (subscribe && enable && subscribe(&subscriber, called, NULL) == CUPTI_SUCCESS)
        (void)enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
    return 1;
}
