//! Numbers of every magnitude: `tests/c/bad_numbers.c`.

slicepool_tests::c_tests! { "tests/c/bad_numbers.c":
    sizes_and_alignments_of_every_magnitude_are_served_or_refused,
    configurations_of_every_magnitude_work_or_are_refused,
    every_field_of_pools_and_configs_may_have_any_value,
    every_field_of_properties_may_have_any_value,
    numbers_of_slices_pages_and_timelines_may_have_any_value,
    pages_that_add_up_to_more_than_64_bits_are_no_crash,
    peaks_of_pools_that_add_up_to_more_than_64_bits_are_no_crash,
    timelines_and_values_of_every_magnitude_are_waited_for,
    limits_of_every_magnitude_hold,
    margins_and_persistent_granules_of_every_magnitude_work_or_are_refused,
    every_field_of_configs_of_buffer_pools_may_have_any_value,
    numbers_of_every_magnitude_change_a_config_of_buffer_pools_or_are_refused_by_name,
}
