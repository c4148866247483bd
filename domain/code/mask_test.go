package code_test

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/code"
)

// TestMask: the end of a long code is shown, of a short one at most a third.
func TestMask(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "A": "*", "AB": "**", "ABC": "**C", "ABC-1": "***-1", "ABCDEF": "****EF", "7KQ2-9F3M-XW4T": "****-****-XW4T",
		"SUN-7KQ2-9F3M-XW4T": "***-****-****-XW4T", strings.Repeat("x", 64): strings.Repeat("*", 60) + "xxxx",
	} {
		if got := code.Mask(given); got != want {
			t.Errorf("%s is shown as %s, want %s", given, got, want)
		}
	}
}
