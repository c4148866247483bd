// Package status is the state of a log and its servers, as the action status.show answers it.
//
//	ends of the streams ─┐
//	leases ──────────────┼─> Read ─> Status
//	servers' reports ────┤
//	the last backup ─────┤
//	open dead letters ───┘
//
// It also has the types of the reports, which servers make: see package server.
//
// Owner: none. A crash has no effect: nothing is stored.
package status
