package manage_test

import (
	"os"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api/apitest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }
