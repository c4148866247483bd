package crash

import (
	"os"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }
