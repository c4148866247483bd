// Package table holds the growing tables of lane state: records in pages with copy-on-write ([Pages]), and a hash table
// of record numbers ([Index]). Neither ever copies itself as a whole, so no command waits for that.
//
// Owner: one goroutine. Only a frozen copy of [Pages] may be read by another. A crash loses nothing: both are rebuilt
// from a snapshot and the log.
package table
