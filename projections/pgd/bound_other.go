//go:build !linux

package pgd

// bound does nothing where no program can set the limits of another one.
func bound(int) {}
