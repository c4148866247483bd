// Package manifests checks docker/compose*.yaml and docker/kubernetes as the programs that read them do, and against what
// `make cluster` starts. It is a module of its own: only this test needs the parsers.
//
//	compose-go ── services ──┬── the same ── cluster.Read, which the processes of `make cluster` are started from
//	k8s.io/api ── pods ──────┘
//
// It has only tests.
package manifests
