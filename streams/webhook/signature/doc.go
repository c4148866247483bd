// Package signature signs and verifies requests by the Standard Webhooks specification 1.0.0.
//
//	webhook-id:        the same at each try
//	webhook-timestamp: seconds since 1970, of the try
//	webhook-signature: v1,<base64 of HMAC-SHA256(secret, id "." timestamp "." body)>, one for each secret, separated by blanks
//
// Two secrets sign at the same time while one replaces the other, so that a receiver may change its own at any moment.
//
// The package has no state; a crash has no effect.
package signature
