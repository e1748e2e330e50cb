"""Studies on Ray. Only the modules of this folder import Ray.

Ray reads its environment variables when it is imported, so this file sets them before any module imports Ray.
"""

import logging

from loopscale.core.cheap_imports import search_rarely
from loopscale.core.ray_environment import be_quiet

be_quiet()

# In a notebook Ray's modules ask for ipywidgets while they are imported. Studies show no widgets.
logging.getLogger("ray.widgets").setLevel(logging.ERROR)

search_rarely()  # a worker imports this file before torch
