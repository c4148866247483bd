package client_test

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }
