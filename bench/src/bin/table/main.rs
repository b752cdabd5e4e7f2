//! One table of ratios, from one run: `make bench`.

use slicepool_bench::results::Folders;
use std::time::Instant;
use std::{fs, io};

mod aligned;
mod churn;
mod contenders;
mod device;
mod goals;
mod packing;
mod reuse;
mod threads;
mod turns;

fn main() -> io::Result<()> {
    let folders = Folders::from_arguments();
    let start = Instant::now();
    let mut goals = goals::Goals::new();
    contenders::check_all();
    let plot = churn::speed(&mut goals);
    churn::layouts(&mut goals);
    churn::latency(&mut goals);
    churn::pages(&mut goals);
    aligned::speed(&mut goals);
    reuse::speed(&mut goals);
    reuse::free_pages(&mut goals);
    reuse::steady();
    packing::smallest_spaces(&mut goals);
    threads::contention(&mut goals);
    device::latency(&mut goals);
    goals.print();
    println!("\nwritten: {}", goals.results().save(&folders.results)?.display());
    if let Some(folder) = folders.plots {
        fs::create_dir_all(&folder)?;
        let path = folder.join("cost.svg");
        fs::write(&path, plot)?;
        println!("written: {}", path.display());
    }
    println!("this run took {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
