package callout

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nats-io/jwt/v2"
)

// requested reads the request of a nats-server, a JWT. Its signature is not checked, which is dear: the request itself names
// the key that made it, so anybody could sign one. Permissions keep others from the subject.
func requested(token string) (*jwt.AuthorizationRequestClaims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > jwt.MaxTokenSize {
		return nil, errors.New("it is no JWT")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, fmt.Errorf("it is no JWT: %w", err)
	}
	var request jwt.AuthorizationRequestClaims
	if err := json.Unmarshal(text, &request); err != nil {
		return nil, err
	}
	if request.Type != jwt.AuthorizationRequestClaim || request.UserNkey == "" {
		return nil, errors.New("it is no request for a log-in")
	}
	return &request, nil
}

// from is the address that a request is about, the zero Addr if it has none.
func from(request *jwt.AuthorizationRequestClaims) netip.Addr {
	a, _ := netip.ParseAddr(request.ClientInformation.Host)
	return a
}
