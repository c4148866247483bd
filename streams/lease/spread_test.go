package lease

import (
	"fmt"
	"slices"
	"testing"
)

func names(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("server-%d", i))
	}
	return out
}

func TestSpreadIsEvenAndStable(t *testing.T) {
	for _, keys := range []int{1, 2, 3, 4, 16, 64} {
		for n := 1; n <= 9; n++ {
			servers := names(n)
			got := spread(servers, keys)
			load := map[string]int{}
			for _, s := range got {
				load[s]++
			}
			for _, s := range servers {
				if load[s] < keys/n || load[s] > (keys+n-1)/n {
					t.Errorf("%d keys on %d servers: %s has %d", keys, n, s, load[s])
				}
			}
			slices.Reverse(servers)
			if !slices.Equal(got, spread(servers, keys)) {
				t.Errorf("%d keys on %d servers: the order of the names matters", keys, n)
			}
		}
	}
	if got := spread(nil, 2); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("no servers: %q", got)
	}
}

// A joining server takes its share, and little else moves.
func TestSpreadMovesLittle(t *testing.T) {
	const keys = 64
	for n := 1; n <= 8; n++ {
		before, after := spread(names(n), keys), spread(names(n+1), keys)
		moved := 0
		for k := range keys {
			if before[k] != after[k] {
				moved++
			}
		}
		if least := keys / (n + 1); moved > 2*least+2 {
			t.Errorf("from %d to %d servers %d of %d keys move, %d would do", n, n+1, moved, keys, least)
		}
	}
}
