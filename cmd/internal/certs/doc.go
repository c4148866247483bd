// Package certs holds the TLS certificate of a server, and follows its files.
//
//	--tls-cert, --tls-key ──> Pair.Run looks every second ──> changed and valid: new connections get it
//	                                                     └──> changed and not valid: the one before stays; log, metric, /readyz
//
// Connections that exist keep the certificate that they began with. The two files are replaced one after the other, so a pair
// that does not fit is looked at again every second.
//
// Owner: the goroutine that the caller runs Pair.Run in. What a crash does: nothing; a server reads the files when it starts.
package certs
