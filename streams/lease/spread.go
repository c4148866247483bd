package lease

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// spread assigns the keys to the servers: evenly, to within one, the same for the same set of servers, and with few keys
// moving when a server joins or leaves, since moving a lane costs reading its state.
//
// Every pair of server and key has a random but fixed weight; the heaviest pairs are assigned first, until a server has
// its share.
func spread(servers []string, keys int) []string {
	out := make([]string, keys)
	if len(servers) == 0 {
		return out
	}
	servers = slices.Clone(servers)
	slices.Sort(servers)
	type pair struct {
		weight      uint64
		server, key int
	}
	pairs := make([]pair, 0, len(servers)*keys)
	for s, name := range servers {
		for k := range keys {
			pairs = append(pairs, pair{weigh(name, k), s, k})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.server, b.server), cmp.Compare(a.key, b.key))
	})
	share, extra := keys/len(servers), keys%len(servers) // extra servers hold one more
	load := make([]int, len(servers))
	for _, p := range pairs {
		switch {
		case out[p.key] != "" || load[p.server] > share || load[p.server] == share && extra == 0:
			continue
		case load[p.server] == share:
			extra--
		}
		load[p.server]++
		out[p.key] = servers[p.server]
	}
	return out
}

func weigh(server string, key int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(server))
	h.Write([]byte{0, byte(key >> 8), byte(key)})
	x := h.Sum64() // FNV's high bits depend little on the last byte; mix them
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
