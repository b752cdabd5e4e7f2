//! Everything at once, from four threads: `tests/c/mixture.c`.

slicepool_tests::c_tests! { "tests/c/mixture.c":
    slices_of_all_sorts_are_their_owners_alone,
    slices_of_all_sorts_are_their_owners_alone_where_faults_are_looked_for,
    slices_of_all_sorts_are_their_owners_alone_where_pages_age,
}
