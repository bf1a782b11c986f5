from gradaccum_compat import errors as errors
from gradaccum_compat import horovod as horovod
from gradaccum_compat import keras as keras
from gradaccum_compat import upgrade as upgrade
from gradaccum_compat._detect import backend as backend
from gradaccum_compat.accumulator import Accumulator as Accumulator
from gradaccum_compat.microbatch import microbatch_gradients as microbatch_gradients
from gradaccum_compat.saver import Saver as Saver
from gradaccum_compat.wrap import unwrap_optimizer as unwrap_optimizer
from gradaccum_compat.wrap import wrap_optimizer as wrap_optimizer

__version__: str
