package api_test

import (
	"os"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }
