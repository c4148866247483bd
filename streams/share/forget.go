package share

// Forget makes room in a map of what clients have used: it removes values that are like new ones, and then any until an eighth of
// most is free, those with a key that goes last after all others. A nil last means that all keys are alike.
func Forget[K comparable, V any](by map[K]V, most int, likeNew func(V) bool, last func(K) bool) {
	for key, value := range by {
		if likeNew(value) {
			delete(by, key)
		}
	}
	for _, all := range []bool{last == nil, true} {
		for key := range by {
			if len(by) <= most*7/8 {
				return
			}
			if all || !last(key) {
				delete(by, key)
			}
		}
	}
}
