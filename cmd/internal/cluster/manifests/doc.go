// Package manifests checks docker/compose*.yaml and docker/kubernetes as the programs that read them do. It is a module of its
// own: only this test needs the parsers.
//
//	compose-go ── services ──┬── the same
//	k8s.io/api ── pods ──────┘
//
// It has only tests.
package manifests
