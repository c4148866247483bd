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

func BenchmarkEncode(b *testing.B) {
	c := New(testKey)
	n := uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		c.Encode(17, n|1)
	}
}

func BenchmarkAppendCode(b *testing.B) {
	c := New(testKey)
	dst := make([]byte, 0, MaxCodeLen)
	n := uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		dst = c.AppendCode(dst[:0], "SUMMER", 17, n|1)
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

// BenchmarkGenericFF1 is what the fast case is worth: the same 60 bits through FF1.
func BenchmarkGenericFF1(b *testing.B) {
	generic, err := NewFF1(testKey[:], 32)
	if err != nil {
		b.Fatal(err)
	}
	x := symbols12(17<<32 | 4_711)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := generic.Encrypt(nil, x); err != nil {
			b.Fatal(err)
		}
	}
}
