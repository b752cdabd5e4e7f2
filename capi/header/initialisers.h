/* Defaults of the structs of this header: every field zero, struct_size set. */
#define SLICEPOOL_FAILURE_INIT \
  { (uint32_t)sizeof(slicepool_failure), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, NULL, NULL }
#define SLICEPOOL_DEVICE_MEMORY_INIT \
  { (uint32_t)sizeof(slicepool_device_memory), 0, 0, 0, 0, NULL, NULL }
#define SLICEPOOL_HEAP_BUDGET_INIT \
  { (uint32_t)sizeof(slicepool_heap_budget), 0, 0, 0 }
#define SLICEPOOL_DEVICE_INIT \
  { (uint32_t)sizeof(slicepool_device), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
#define SLICEPOOL_HOST_INIT \
  { (uint32_t)sizeof(slicepool_host), 0, NULL, NULL, NULL, NULL, NULL, NULL }
#define SLICEPOOL_MEMORY_TYPE_INIT \
  { (uint32_t)sizeof(slicepool_memory_type), 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_HEAP_INIT \
  { (uint32_t)sizeof(slicepool_heap), 0, 0, 0 }
#define SLICEPOOL_ALLOCATION_SIZES_INIT \
  { (uint32_t)sizeof(slicepool_allocation_sizes), 0, 0, 0, 0, 0 }
#define SLICEPOOL_POOL_OPTIONS_INIT \
  { (uint32_t)sizeof(slicepool_pool_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_LAYOUT_PROPERTIES_INIT \
  { (uint32_t)sizeof(slicepool_layout_properties), 0, 0, 0, 0 }
#define SLICEPOOL_BUDGET_CONFIG_INIT \
  { (uint32_t)sizeof(slicepool_budget_config), 0, 0, NULL, NULL }
#define SLICEPOOL_BUDGET_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_budget_statistics), 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_ALLOCATOR_CONFIG_INIT \
  { (uint32_t)sizeof(slicepool_allocator_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL }
#define SLICEPOOL_REQUEST_INIT \
  { (uint32_t)sizeof(slicepool_request), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL }
#define SLICEPOOL_SLICE_INIT \
  { (uint32_t)sizeof(slicepool_slice), 0, 0, 0, 0, 0, 0, NULL, NULL }
#define SLICEPOOL_RANGE_INIT \
  { (uint32_t)sizeof(slicepool_range), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0 }
#define SLICEPOOL_SPACE_CONFIG_INIT \
  { (uint32_t)sizeof(slicepool_space_config), 0, 0, 0, NULL, NULL }
#define SLICEPOOL_SPACE_SLICE_INIT \
  { (uint32_t)sizeof(slicepool_space_slice), 0, 0, 0, 0 }
#define SLICEPOOL_SPACE_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_space_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_BUFFER_POOL_CONFIG_INIT \
  { (uint32_t)sizeof(slicepool_buffer_pool_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0, NULL, NULL, NULL, NULL, NULL, \
    NULL }
#define SLICEPOOL_BUFFER_INIT \
  { (uint32_t)sizeof(slicepool_buffer), 0, 0, 0, 0, 0, 0, NULL, NULL }
#define SLICEPOOL_BUFFER_POOL_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_buffer_pool_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_BUFFER_CLASS_STATISTICS_INIT \
  { (uint32_t)sizeof(slicepool_buffer_class_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define SLICEPOOL_BUFFER_REGION_INIT \
  { (uint32_t)sizeof(slicepool_buffer_region), 0, 0, 0, 0, 0, 0, NULL, NULL }
