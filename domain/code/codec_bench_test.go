package code

import "testing"

func TestCodesAllocateNothing(t *testing.T) {
	c := New(testKey)
	dst := make([]byte, 0, MaxCodeLen)
	n := uint32(0)
	if allocs := testing.AllocsPerRun(1000, func() {
		n++
		dst = c.AppendCode(dst[:0], "SUMMER", 17, n)
	}); allocs != 0 {
		t.Errorf("AppendCode: %v allocations, want 0", allocs)
	}
	input := string(dst)
	if allocs := testing.AllocsPerRun(1000, func() {
		if _, got, ok := c.Decode(input); !ok || got != n {
			t.Fatalf("Decode(%s) = %d, %v", input, got, ok)
		}
	}); allocs != 0 {
		t.Errorf("Decode: %v allocations, want 0", allocs)
	}
}

func BenchmarkDecode(b *testing.B) {
	c := New(testKey)
	input := string(c.AppendCode(nil, "SUMMER", 17, 4_711))
	b.ReportAllocs()
	for b.Loop() {
		c.Decode(input)
	}
}
