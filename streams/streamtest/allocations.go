package streamtest

import "testing"

// Allocations returns the least average of allocations of a function, of five measurements. One measurement counts what the
// servers of the process allocate meanwhile, too.
func Allocations(f func()) float64 {
	least := testing.AllocsPerRun(100, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(100, f))
	}
	return least
}
