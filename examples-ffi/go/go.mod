module slicepool.example

go 1.19
