use slicepool_core::*;
#[test]
fn smoke() {
    let pools = [PoolOptions::sliced_pages(1 << 20, 1 << 20, None)];
    let a = Allocator::try_new(HostDevice::new(), &pools, AllocatorOptions::default()).unwrap();
    let mut live = Vec::new();
    let mut x = 1u64;
    for i in 0..20000u64 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        if live.len() > 300 || (x & 1 == 0 && !live.is_empty()) {
            let k = (x >> 20) as usize % live.len();
            let s: Slice = live.swap_remove(k);
            a.free(s.id).unwrap();
        } else {
            let s = a.allocate(&Request::new(x % 20000 + 1).aligned(1 << (x >> 40) % 13)).unwrap();
            live.push(s);
        }
        if let Err(e) = a.check() {
            panic!("{i} {e}");
        }
    }
    for s in live {
        a.free(s.id).unwrap();
        a.check().unwrap();
    }
    let st = a.statistics();
    println!("{st:?}");
    let mut j = String::new();
    a.write_json(&mut j).unwrap();
    println!("{j}");
    assert!(a.destroy().is_ok());
}
