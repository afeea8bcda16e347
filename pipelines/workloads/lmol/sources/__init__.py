"""Sources of images and their scores: two embedded ones, and a user's files.

digits    the handwritten digits of scikit-learn, scored by their values
photos    crops of photos inside scikit-image and scikit-learn, degraded in four ways and scored by what is left
a folder  images, and one CSV; or folders of images, a folder per rank
parquet   files with images in a column, as they come from the hub
a CSV     image,score, next to the images, or answers about pairs of them: img1,img2,label or winner,loser
"""

from pathlib import Path

from pipelines.workloads.lmol.config import Data
from pipelines.workloads.lmol.sources import packed
from pipelines.workloads.lmol.sources.image_set import ImageSet
from pipelines.workloads.lmol.sources.photos import read_digits, read_photos
from pipelines.workloads.lmol.sources.user_files import read_packed, read_user_files


def read(data: Data, path: Path) -> ImageSet:
    """Return the images, written to `path`.npy, and scores of `data.source`; UserError for missing or unusable ones."""
    other = read_packed if packed.files(Path(data.source)) else read_user_files
    return {"digits": read_digits, "photos": read_photos}.get(data.source, other)(data, path)
