"""``python -m app.openapi``: see ``document``."""

import sys

from app.openapi.document import main

sys.exit(main())
