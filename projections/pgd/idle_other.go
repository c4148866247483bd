//go:build !linux

package pgd

// Idle has an effect on Linux only.
func (c *Cluster) Idle([]int) {}
