/* A Vulkan driver without a device, for tests: compiles shaders with another driver, and executes nothing.
 *
 * RADV_FORCE_FAMILY makes RADV compile for a GPU that is not there. WebGPU does not accept this device, because it has
 * no memory and no timeline semaphores. This driver loads RADV and forwards its functions, with these exceptions:
 *
 *   memory      two heaps are reported; an allocation is anonymous memory of this process
 *   semaphores  a semaphore is signalled as soon as it is submitted
 *   commands    are not recorded and not executed
 *
 * NULL_DRIVER names the library to load (libvulkan_radeon.so).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vulkan/vk_icd.h>
#include <vulkan/vulkan.h>

#define GIB (1ull << 30)
#define DEVICE_BYTES (24 * GIB)
#define HOST_BYTES (32 * GIB)
#define MEMORY_TYPES 2
#define ALIGNMENT 256

/* ---------------------------------------------------------------- the driver that compiles */

static void *library;
static PFN_vkGetInstanceProcAddr next_instance_function;
static PFN_vkGetDeviceProcAddr next_device_function;
static PFN_vkCreateSemaphore next_create_semaphore;
static PFN_vkGetBufferMemoryRequirements next_buffer_requirements;
static PFN_vkGetBufferMemoryRequirements2 next_buffer_requirements2;

static void *symbol(const char *name) {
    if (!library) {
        const char *path = getenv("NULL_DRIVER");
        library = dlopen(path ? path : "libvulkan_radeon.so", RTLD_NOW);
        if (!library) {
            fprintf(stderr, "null driver: %s\n", dlerror());
            abort();
        }
    }
    return dlsym(library, name);
}

/* ---------------------------------------------------------------- memory */

typedef struct {
    void *data;
    uint64_t size;
} Allocation;

static void set_memory_properties(VkPhysicalDeviceMemoryProperties *properties) {
    memset(properties, 0, sizeof *properties);
    properties->memoryHeapCount = 2;
    properties->memoryHeaps[0] = (VkMemoryHeap){DEVICE_BYTES, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    properties->memoryHeaps[1] = (VkMemoryHeap){HOST_BYTES, 0};
    properties->memoryTypeCount = MEMORY_TYPES;
    properties->memoryTypes[0] = (VkMemoryType){VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
    properties->memoryTypes[1] = (VkMemoryType){
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
        1,
    };
}

static void memory_properties(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties *properties) {
    set_memory_properties(properties);
}

static void memory_properties2(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties2 *properties) {
    set_memory_properties(&properties->memoryProperties);
    for (VkBaseOutStructure *next = properties->pNext; next; next = next->pNext) {
        if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) {
            VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)next;
            memset(budget->heapBudget, 0, sizeof budget->heapBudget);
            memset(budget->heapUsage, 0, sizeof budget->heapUsage);
            budget->heapBudget[0] = DEVICE_BYTES;
            budget->heapBudget[1] = HOST_BYTES;
        }
    }
}

static VkResult allocate_memory(
    VkDevice device, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *callbacks, VkDeviceMemory *memory) {
    Allocation *allocation = malloc(sizeof *allocation);
    allocation->size = info->allocationSize;
    allocation->data = mmap(
        NULL, allocation->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *memory = (VkDeviceMemory)allocation;
    return allocation->data == MAP_FAILED ? VK_ERROR_OUT_OF_DEVICE_MEMORY : VK_SUCCESS;
}

static void free_memory(VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks *callbacks) {
    Allocation *allocation = (Allocation *)memory;
    if (allocation) {
        munmap(allocation->data, allocation->size);
        free(allocation);
    }
}

static VkResult map_memory(
    VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size, VkMemoryMapFlags flags, void **data) {
    *data = (char *)((Allocation *)memory)->data + offset;
    return VK_SUCCESS;
}

/* RADV would name the memory types of the device that is not there. */
static void set_requirements(VkMemoryRequirements *requirements) {
    requirements->memoryTypeBits = (1 << MEMORY_TYPES) - 1;
    if (requirements->alignment < ALIGNMENT)
        requirements->alignment = ALIGNMENT;
}

static void buffer_requirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements *requirements) {
    next_buffer_requirements(device, buffer, requirements);
    set_requirements(requirements);
}

static void buffer_requirements2(
    VkDevice device, const VkBufferMemoryRequirementsInfo2 *info, VkMemoryRequirements2 *requirements) {
    next_buffer_requirements2(device, info, requirements);
    set_requirements(&requirements->memoryRequirements);
}

/* ---------------------------------------------------------------- queue */

static uint64_t last_signal; /* the largest value that any submit signals: all semaphores have it */

static VkResult create_semaphore(
    VkDevice device, const VkSemaphoreCreateInfo *info, const VkAllocationCallbacks *callbacks, VkSemaphore *semaphore) {
    VkSemaphoreCreateInfo binary = *info;
    binary.pNext = NULL; /* asks for a timeline, which the device does not have */
    return next_create_semaphore(device, &binary, callbacks, semaphore);
}

static VkResult semaphore_value(VkDevice device, VkSemaphore semaphore, uint64_t *value) {
    *value = last_signal;
    return VK_SUCCESS;
}

static VkResult queue_submit(VkQueue queue, uint32_t count, const VkSubmitInfo *submits, VkFence fence) {
    for (uint32_t i = 0; i < count; i++) {
        for (const VkBaseInStructure *next = submits[i].pNext; next; next = next->pNext) {
            if (next->sType != VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO)
                continue;
            const VkTimelineSemaphoreSubmitInfo *timeline = (const void *)next;
            for (uint32_t k = 0; k < timeline->signalSemaphoreValueCount; k++)
                if (timeline->pSignalSemaphoreValues[k] > last_signal)
                    last_signal = timeline->pSignalSemaphoreValues[k];
        }
    }
    return VK_SUCCESS;
}

/* Stands for functions of any arguments: by the calling conventions of Linux the caller removes them. */
static long do_nothing(void) {
    return VK_SUCCESS;
}

/* ---------------------------------------------------------------- dispatch */

static bool starts(const char *name, const char *prefix) {
    return !strncmp(name, prefix, strlen(prefix));
}

static const struct {
    const char *prefix; /* with it functions of an extension, such as vkWaitSemaphoresKHR */
    void *function;
} REPLACEMENTS[] = {
    {"vkGetPhysicalDeviceMemoryProperties2", memory_properties2},
    {"vkGetPhysicalDeviceMemoryProperties", memory_properties},
    {"vkAllocateMemory", allocate_memory},
    {"vkFreeMemory", free_memory},
    {"vkMapMemory", map_memory},
    {"vkGetSemaphoreCounterValue", semaphore_value},
    {"vkWaitSemaphores", do_nothing},
    {"vkQueueSubmit", queue_submit},
    {"vkUnmapMemory", do_nothing},
    {"vkBindBufferMemory", do_nothing},
    {"vkFlushMappedMemoryRanges", do_nothing},
    {"vkInvalidateMappedMemoryRanges", do_nothing},
    {"vkCmd", do_nothing},
    {"vkUpdateDescriptorSet", do_nothing},
    {"vkBeginCommandBuffer", do_nothing},
    {"vkEndCommandBuffer", do_nothing},
    {"vkResetCommand", do_nothing}, /* Buffer, Pool */
    {"vkGetQueryPoolResults", do_nothing},
    {"vkDeviceWaitIdle", do_nothing},
    {"vkQueueWaitIdle", do_nothing},
};

static PFN_vkVoidFunction replace(const char *name, PFN_vkVoidFunction next) {
    if (!strcmp(name, "vkQueueSubmit2") || !strcmp(name, "vkMapMemory2KHR") || !strcmp(name, "vkUnmapMemory2KHR"))
        return next; /* other arguments; wgpu does not call them */
    if (!strcmp(name, "vkCreateSemaphore")) {
        next_create_semaphore = (PFN_vkCreateSemaphore)next;
        return (PFN_vkVoidFunction)create_semaphore;
    }
    if (starts(name, "vkGetBufferMemoryRequirements2")) {
        next_buffer_requirements2 = (PFN_vkGetBufferMemoryRequirements2)next;
        return (PFN_vkVoidFunction)buffer_requirements2;
    }
    if (!strcmp(name, "vkGetBufferMemoryRequirements")) {
        next_buffer_requirements = (PFN_vkGetBufferMemoryRequirements)next;
        return (PFN_vkVoidFunction)buffer_requirements;
    }
    for (size_t i = 0; i < sizeof REPLACEMENTS / sizeof *REPLACEMENTS; i++)
        if (starts(name, REPLACEMENTS[i].prefix))
            return (PFN_vkVoidFunction)REPLACEMENTS[i].function;
    return next;
}

static PFN_vkVoidFunction device_function(VkDevice device, const char *name) {
    PFN_vkVoidFunction next = next_device_function(device, name);
    return next ? replace(name, next) : NULL;
}

/* The three functions that the loader looks for in a driver. */

PFN_vkVoidFunction vk_icdGetInstanceProcAddr(VkInstance instance, const char *name) {
    if (!next_instance_function)
        next_instance_function = symbol("vk_icdGetInstanceProcAddr");
    PFN_vkVoidFunction next = next_instance_function(instance, name);
    if (next && !strcmp(name, "vkGetDeviceProcAddr")) {
        next_device_function = (PFN_vkGetDeviceProcAddr)next;
        return (PFN_vkVoidFunction)device_function;
    }
    return next ? replace(name, next) : NULL;
}

VkResult vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    VkResult (*next)(uint32_t *) = symbol("vk_icdNegotiateLoaderICDInterfaceVersion");
    return next(version);
}

PFN_vkVoidFunction vk_icdGetPhysicalDeviceProcAddr(VkInstance instance, const char *name) {
    PFN_vkVoidFunction (*next)(VkInstance, const char *) = symbol("vk_icdGetPhysicalDeviceProcAddr");
    PFN_vkVoidFunction function = next ? next(instance, name) : NULL;
    return function ? replace(name, function) : NULL;
}
