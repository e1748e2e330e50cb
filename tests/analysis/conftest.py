import sys
from pathlib import Path

# The tests are imported by path (importlib mode), so a module beside them is found only if it is told where.
sys.path.insert(0, str(Path(__file__).parent))
